"""The whole engine on the emulated npu: scheduler, runner, sampler. In float32 it gives the CPU's tokens, every one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from gguf import GGMLQuantizationType as Kind

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.runner import LoadedModel, NativeRunner
from mindserve_engine.types import SamplingParams
from tests import tiny_adapters, tiny_chatglm, tiny_gguf, tiny_models
from tests.bench import device
from tests.engine import scenarios
from tests.engine.drive import Driver, generate, load, prompts_for
from tests.engine.scenarios import SAMPLED, SETTINGS, both_run, mixed
from tests.npu_emulation.kernels import KERNELS
from tests.npu_emulation.tensors import Emulator

pytestmark = pytest.mark.usefixtures("float32")

SHAPES: Final[dict[str, dict[str, int]]] = {
    "llama": {"head_dim": 64},
    "qwen2": {"hidden_size": 256},
    "qwen3": {"head_dim": 128},
    "chatglm": {"kv_channels": 128},
}
"""Heads that attention of the npu takes; qwen2's come of its width."""

Loaded = Callable[..., LoadedModel]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in made:
            build_in = tiny_chatglm.build if name == "chatglm" else partial(tiny_models.build, name)
            made[name] = build_in(tmp_path_factory.mktemp(name), **SHAPES[name])
        return made[name]

    return build


@pytest.fixture
def pair(folder: Callable[[str], Path]) -> Callable[..., tuple[LoadedModel, LoadedModel]]:
    def both(name: str, **options: Any) -> tuple[LoadedModel, LoadedModel]:
        settings = {**SETTINGS, **options}
        return load(folder(name), **settings), load(folder(name), device="npu", **settings)

    return both


def graphs_of(loaded: LoadedModel) -> list[int]:
    assert isinstance(loaded.runner, NativeRunner)
    return [] if loaded.runner.graphs is None else loaded.runner.graphs.sizes


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
@pytest.mark.parametrize("name", list(SHAPES))
def check_every_phase(pair: Any, name: str, graphs: bool) -> None:
    loaded = pair(name, graphs=graphs)
    assert graphs_of(loaded[1]) == ([1, 2, 4, 6] if graphs else [])
    assert loaded[1].info.device == "npu"
    both_run(loaded, mixed)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_a_prefix_hit(pair: Any, graphs: bool) -> None:
    scenarios.prefix_hit(pair("qwen3", graphs=graphs))


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_preemption(pair: Any, graphs: bool) -> None:
    scenarios.preemption(pair("llama", graphs=graphs), 4, 120, 124, 126)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_forks_copy_blocks(pair: Any, graphs: bool) -> None:
    scenarios.forks(pair("qwen3", graphs=graphs))


def check_beams(pair: Any) -> None:
    both_run(pair("qwen3"), scenarios.beams)


def check_sampling_side_by_side(pair: Any) -> None:
    scenarios.sampling_side_by_side(pair("qwen2"))


def check_a_grammar_beside_a_free_row(pair: Any, folder: Callable[[str], Path]) -> None:
    loaded = pair("qwen2")
    vocabulary = load_tokenizer(folder("qwen2")).vocabulary(loaded[0].info.eos_token_ids)
    scenarios.grammar_beside_a_free_row(loaded, vocabulary)


def check_adapters(pair: Any, folder: Callable[[str], Path], tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    tiny_adapters.write(folder("llama"), adapter, seed=3)
    both_run(pair("llama", adapters={"a": adapter}), scenarios.adapters)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_one_copy_each_way(pair: Any, emulator: Emulator, graphs: bool) -> None:
    """A step of greedy rows: one copy to the device, and one wait for what comes back."""
    _, on_npu = pair("qwen3", graphs=graphs)
    driver = Driver(on_npu, **SETTINGS)
    for number, prompt in enumerate(prompts_for([20, 30, 40])):
        driver.add(str(number), prompt, 10)
    driver.step()
    for _ in range(5):
        emulator.waits.clear()
        emulator.uploads.clear()
        driver.step()
        assert len(emulator.waits) == 1, emulator.waits
        assert len(emulator.uploads) == 1, emulator.uploads


def check_sampled_steps_do_not_wait_for_what_they_upload(pair: Any, emulator: Emulator) -> None:
    """Each kind of setting brings its numbers in one copy; the host waits once, for the results."""
    _, on_npu = pair("qwen3")
    for name, params in SAMPLED.items():
        driver = Driver(on_npu, **SETTINGS)
        for number, prompt in enumerate(prompts_for([20, 30, 40])):
            sampling = SamplingParams(**{"temperature": 1.0, "seed": number, **params})
            driver.add(str(number), prompt, 8, sampling)
        driver.step()
        for _ in range(5):
            emulator.waits.clear()
            emulator.uploads.clear()
            driver.step()
            assert len(emulator.waits) == 1, (name, emulator.waits)
            assert len(emulator.uploads) == (3 if name in ("penalties", "bias") else 2), (name, emulator.uploads)


def check_copies_of_blocks_do_not_wait(pair: Any, emulator: Emulator) -> None:
    _, on_npu = pair("qwen3")
    emulator.waits.clear()
    emulator.uploads.clear()
    on_npu.runner.copy_blocks([(0, 1), (2, 3)])
    assert emulator.waits == []
    assert len(emulator.uploads) == 1, "for all layers"


def check_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """In 16 bits the device gives float32's logits within rounding, over prompts and captured decode steps."""
    assert device.main(["--device", "npu", "--tiny"]) == 0
    told = capsys.readouterr().out
    assert "| small, random | bfloat16 |" in told
    assert "WRONG" not in told


@pytest.mark.parametrize("embedding", [Kind.Q8_0, Kind.Q4_1, Kind.F16])
def check_a_gguf_file(tmp_path: Path, embedding: Kind) -> None:
    """Its rows of embeddings stay as they are in the file; matrices are widened."""
    path = tiny_gguf.write("qwen3", tmp_path, embedding=embedding, head_dim=128)
    prompts = prompts_for([3, 140])
    on_cpu = generate(load(path, **SETTINGS), prompts, 8)
    assert generate(load(path, device="npu", **SETTINGS), prompts, 8) == on_cpu
    in_four_bits = load(path, device="npu", **{**SETTINGS, "dtype": "int4"})
    assert all(len(tokens) == 8 for tokens in generate(in_four_bits, prompts, 8))


def check_the_device_has_all_kernels(pair: Any, emulator: Emulator) -> None:
    """Of what the checks before this one ran: ``KERNELS`` is held against the published package."""
    both_run(pair("qwen2"), mixed)
    assert " ".join(sorted(emulator.kernels - KERNELS)) == ""

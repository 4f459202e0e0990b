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
from tests.engine.drive import Driver, generate, load, random_prompts, small_pool
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
SETTINGS: Final = {"max_step_tokens": 256, "max_batch_size": 6}

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


def both_run(pair: tuple[LoadedModel, LoadedModel], scenario: Callable[[Driver], None]) -> list[Driver]:
    """The same requests on both; what comes of them is equal."""
    drivers = [Driver(loaded, **SETTINGS) for loaded in pair]
    for driver in drivers:
        scenario(driver)
        driver.run()
        assert not driver.failures
    on_cpu, on_npu = drivers
    assert on_npu.tokens == on_cpu.tokens
    assert on_npu.num_cached == on_cpu.num_cached
    return drivers


def mixed(driver: Driver) -> None:
    """Short and long prompts that come while others decode: prefill, chunks with history, decode rows in one step."""
    prompts = random_prompts([3, 140, 300, 60], vocab_size=tiny_models.VOCAB_SIZE)
    for number, prompt in enumerate(prompts):
        driver.add(str(number), prompt, 12)
        driver.step()
        driver.step()


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
@pytest.mark.parametrize("name", list(SHAPES))
def check_every_phase(pair: Any, name: str, graphs: bool) -> None:
    loaded = pair(name, graphs=graphs)
    assert graphs_of(loaded[1]) == ([1, 2, 4, 6] if graphs else [])
    assert loaded[1].info.device == "npu"
    both_run(loaded, mixed)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_a_prefix_hit(pair: Any, graphs: bool) -> None:
    start, rest = random_prompts([256, 40], vocab_size=tiny_models.VOCAB_SIZE)

    def scenario(driver: Driver) -> None:
        driver.add("first", start + rest[:9], 3)
        driver.run()
        driver.add("second", start + rest, 8)

    _, on_npu = both_run(pair("qwen3", graphs=graphs), scenario)
    assert on_npu.num_cached["second"] == 256


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_preemption(pair: Any, graphs: bool) -> None:
    loaded = pair("llama", graphs=graphs)
    with small_pool(loaded[0], 4) as small_cpu, small_pool(loaded[1], 4) as small_npu:

        def scenario(driver: Driver) -> None:
            for number, prompt in enumerate(random_prompts([120, 124, 126], vocab_size=tiny_models.VOCAB_SIZE)):
                driver.add(str(number), prompt, 30)

        drivers = both_run((small_cpu, small_npu), scenario)
    assert all(driver.loop.stats().num_preemptions_total for driver in drivers)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_forks_copy_blocks(pair: Any, graphs: bool) -> None:
    [prompt] = random_prompts([150], vocab_size=tiny_models.VOCAB_SIZE)

    def scenario(driver: Driver) -> None:
        sampling = SamplingParams(temperature=0.8, top_k=20, seed=5)
        driver.add("forks", prompt, 10, sampling, num_sequences=3)

    _, on_npu = both_run(pair("qwen3", graphs=graphs), scenario)
    assert len({tuple(token for event in one for token in event.token_ids) for one in on_npu.sequences("forks")}) == 3


def check_beams(pair: Any) -> None:
    [prompt] = random_prompts([40], vocab_size=tiny_models.VOCAB_SIZE)

    def scenario(driver: Driver) -> None:
        driver.add("beams", prompt, 6, num_sequences=2, beam_width=3)

    both_run(pair("qwen3"), scenario)


SAMPLED: Final = {
    "all": {},
    "top-k": {"top_k": 7},
    "top-p": {"top_p": 0.9},
    "both": {"top_k": 30, "top_p": 0.5, "temperature": 1.5},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "bias": {"logit_bias": ((5, 4.0), (9, -100.0))},
}


def check_sampling_side_by_side(pair: Any) -> None:
    """Each in a batch with the others; and log-probabilities of some."""
    prompts = random_prompts([20] * len(SAMPLED), vocab_size=tiny_models.VOCAB_SIZE)

    def scenario(driver: Driver) -> None:
        for seed, ((name, params), prompt) in enumerate(zip(SAMPLED.items(), prompts, strict=True)):
            sampling = SamplingParams(**{"temperature": 1.0, "seed": seed, **params})
            driver.add(name, prompt, 15, sampling, num_logprobs=3 if "top" in name else None)

    on_cpu, on_npu = both_run(pair("qwen2"), scenario)
    for event, other in zip(on_npu.events["top-k"], on_cpu.events["top-k"], strict=True):
        assert event.logprobs[0].logprob == pytest.approx(other.logprobs[0].logprob, abs=1e-4)
        assert event.logprobs[0].top_token_ids == other.logprobs[0].top_token_ids


def check_a_grammar_beside_a_free_row(pair: Any, folder: Callable[[str], Path]) -> None:
    loaded = pair("qwen2")
    vocabulary = load_tokenizer(folder("qwen2")).vocabulary(loaded[0].info.eos_token_ids)

    def scenario(driver: Driver) -> None:
        driver.loop.learn(vocabulary)
        sampling = SamplingParams(temperature=2.0, seed=3)
        driver.add("bound", [5, 6, 7], 12, sampling, grammar="start: /[a-z]{40}/")
        driver.add("free", [5, 6, 7], 12, sampling)

    _, on_npu = both_run(loaded, scenario)
    text = b"".join(vocabulary.token_bytes[token] for token in on_npu.tokens["bound"]).decode()
    assert text.isalpha()
    assert text.islower()


def check_adapters(pair: Any, folder: Callable[[str], Path], tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    tiny_adapters.write(folder("llama"), adapter, seed=3)
    prompts = random_prompts([30, 140], vocab_size=tiny_models.VOCAB_SIZE)

    def scenario(driver: Driver) -> None:
        driver.add("plain", prompts[0], 8)
        driver.add("adapted", prompts[0], 8, adapter="a")
        driver.add("long", prompts[1], 8, adapter="a")

    both_run(pair("llama", adapters={"a": adapter}), scenario)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def check_one_copy_each_way(pair: Any, emulator: Emulator, graphs: bool) -> None:
    """A step of greedy rows: one copy to the device, and one wait for what comes back."""
    _, on_npu = pair("qwen3", graphs=graphs)
    driver = Driver(on_npu, **SETTINGS)
    for number, prompt in enumerate(random_prompts([20, 30, 40], vocab_size=tiny_models.VOCAB_SIZE)):
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
        for number, prompt in enumerate(random_prompts([20, 30, 40], vocab_size=tiny_models.VOCAB_SIZE)):
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
    prompts = random_prompts([3, 140], vocab_size=tiny_models.VOCAB_SIZE)
    on_cpu = generate(load(path, **SETTINGS), prompts, 8)
    assert generate(load(path, device="npu", **SETTINGS), prompts, 8) == on_cpu
    in_four_bits = load(path, device="npu", **{**SETTINGS, "dtype": "int4"})
    assert all(len(tokens) == 8 for tokens in generate(in_four_bits, prompts, 8))


def check_the_device_has_all_kernels(pair: Any, emulator: Emulator) -> None:
    """Of what the checks before this one ran: ``KERNELS`` is held against the published package."""
    both_run(pair("qwen2"), mixed)
    assert " ".join(sorted(emulator.kernels - KERNELS)) == ""

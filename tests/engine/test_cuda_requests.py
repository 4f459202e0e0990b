"""Whatever a request may ask for comes out on the CUDA device as on the CPU, in float32: on a GPU where there is one,
and everywhere its own code on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.runner import LoadedModel
from tests import tiny_adapters, tiny_gguf
from tests.engine import scenarios
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, generate, load, prompts_for, small_pool
from tests.engine.scenarios import SETTINGS, both_run
from tests.engine.test_cuda_equality import KINDS, device_of, load_on

PairOf = Callable[[str], Pair]
Both = Callable[..., tuple[LoadedModel, LoadedModel]]


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest, tiny_pair: PairOf) -> Both:
    """The same model on the CPU and on the device, with blocks of one size."""

    def made(name: str, **options: Any) -> tuple[LoadedModel, LoadedModel]:
        device, path = device_of(request.param), tiny_pair(name).path
        settings = {**SETTINGS, "block_size": 16, **options}
        return load(path, **settings), load_on(device, path, **settings)

    return made


def test_mixed(both: Both) -> None:
    loaded = both("qwen2")
    assert loaded[1].info.device == "cuda"
    both_run(loaded, scenarios.mixed)


def test_sampling_and_logprobs(both: Both) -> None:
    scenarios.sampling_side_by_side(both("qwen2"))


def test_forks(both: Both) -> None:
    scenarios.forks(both("qwen3"))


def test_beams(both: Both) -> None:
    both_run(both("qwen3"), scenarios.beams)


def test_a_grammar(both: Both, tiny_pair: PairOf) -> None:
    loaded = both("qwen2")
    vocabulary = load_tokenizer(tiny_pair("qwen2").path).vocabulary(loaded[0].info.eos_token_ids)
    scenarios.grammar_beside_a_free_row(loaded, vocabulary)


def test_adapters(both: Both, tiny_pair: PairOf, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    tiny_adapters.write(tiny_pair("llama").path, adapter, seed=3)
    both_run(both("llama", adapters={"a": adapter}), scenarios.adapters)


def test_preemption(both: Both) -> None:
    """Three requests that grow beyond the four blocks give way to each other; on the CPU there is room for all."""
    on_cpu, on_device = both("llama")
    size = on_device.info.block_size
    told = []
    with small_pool(on_device, 4) as small:
        for loaded in (on_cpu, small):
            driver = Driver(loaded, **SETTINGS)
            for number, prompt in enumerate(prompts_for((size - 8, size - 4, size - 2))):
                driver.add(str(number), prompt, 12)
            told.append(driver.run())
    assert told[0] == told[1]
    assert driver.loop.stats().num_preemptions_total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("embedding", [Kind.Q8_0, Kind.Q4_1])
def test_a_gguf_file(tmp_path: Path, kind: str, embedding: Kind) -> None:
    path = tiny_gguf.write("qwen3", tmp_path, embedding=embedding)
    prompts = prompts_for((3, 140))
    expected = generate(load(path, **SETTINGS), prompts, 8)
    assert generate(load_on(device_of(kind), path, **SETTINGS), prompts, 8) == expected

"""The CUDA device in float32 equals transformers' ``generate`` token for token: on a GPU where there is one, and
everywhere its own code on the CPU, with flash-attn stood in for by what it is documented to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mindserve_engine.native import runner
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.device.cuda import create
from mindserve_engine.native.runner import LoadedModel
from mindserve_engine.options import EngineOptions
from tests import tiny_chatglm, tiny_models
from tests.cuda_host import FlashPackage, HostCuda
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, assert_continues, generate, load, random_prompts, reference

PairOf = Callable[[str], Pair]
KINDS = ("gathered", "flash", "gpu")
LENGTHS = (1, 2, 15, 16, 17, 33, 70, 110, 256, 257, 300)
"""Around the edges of blocks."""
NUM_TOKENS = 16


def device_of(kind: str) -> Device:
    if kind == "gpu":
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU, or torch is a build without CUDA")
        return create(EngineOptions(model_path=Path(), dtype="float32", block_size=16))
    return HostCuda(block_size=16) if kind == "gathered" else HostCuda(block_size=256, package=FlashPackage())


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return device_of(request.param)


def load_on(device: Device, path: Path) -> LoadedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "create_device", lambda _options: device)
        return load(path)


def prompts_for(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    return random_prompts(lengths, vocab_size=tiny_models.VOCAB_SIZE, seed=seed)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2", "gpt-oss", "mistral-window"])
def test_mixed_batch(tiny_pair: PairOf, device: Device, name: str) -> None:
    pair = tiny_pair(name)
    prompts = prompts_for(LENGTHS)
    assert_continues(
        generate(load_on(device, pair.path), prompts, NUM_TOKENS), reference(pair.theirs, prompts, NUM_TOKENS)
    )


@pytest.mark.parametrize("max_step_tokens", [7, 64])
def test_chunked_prefill(tiny_pair: PairOf, device: Device, max_step_tokens: int) -> None:
    pair = tiny_pair("qwen2")
    prompts = prompts_for((3, 300, 50, 120), seed=2)
    expected = reference(pair.theirs, prompts, NUM_TOKENS)
    assert_continues(
        generate(load_on(device, pair.path), prompts, NUM_TOKENS, max_step_tokens=max_step_tokens), expected
    )


def test_forks_and_prefix_hits(tiny_pair: PairOf, device: Device) -> None:
    """Blocks are shared, and copied when one of several sequences writes."""
    pair = tiny_pair("llama")
    [prompt] = prompts_for((280,), seed=3)
    driver = Driver(load_on(device, pair.path))
    driver.add("first", prompt, NUM_TOKENS)
    driver.run()
    driver.add("again", prompt, NUM_TOKENS)
    driver.add("several", prompt, NUM_TOKENS, num_sequences=3)
    driver.run()
    [expected] = reference(pair.theirs, [prompt], NUM_TOKENS)
    several = [[token for event in events for token in event.token_ids] for events in driver.sequences("several")]
    assert_continues([driver.tokens["first"], driver.tokens["again"], *several], [expected] * 5)
    assert driver.num_cached["again"] >= 256


def test_chatglm(tmp_path: Path, device: Device) -> None:
    folder = tiny_chatglm.build(tmp_path)
    prompts = random_prompts((1, 40, 260), vocab_size=tiny_chatglm.CONFIG["padded_vocab_size"])
    written_out = tiny_chatglm.Reference(folder)
    expected = [written_out.greedy(prompt, NUM_TOKENS) for prompt in prompts]
    assert_continues(generate(load_on(device, folder), prompts, NUM_TOKENS), expected)


def test_decode_is_captured_and_read_from_the_device(tiny_pair: PairOf) -> None:
    package = FlashPackage()
    device = HostCuda(block_size=256, package=package)
    pair = tiny_pair("llama")
    ours = load_on(device, pair.path)
    assert device.host_graphs.num_captured == 5, "1, 2, 4, 8 and 16 rows"
    package.calls.clear()
    prompts = prompts_for((5, 9, 250))
    assert_continues(generate(ours, prompts, NUM_TOKENS), reference(pair.theirs, prompts, NUM_TOKENS))
    assert set(package.calls) == {"flash_attn_varlen_func", "flash_attn_with_kvcache"}


def test_gathered_decode_is_not_captured(tiny_pair: PairOf) -> None:
    device = HostCuda(block_size=16)
    load_on(device, tiny_pair("llama").path)
    assert device.graphs is None
    assert device.host_graphs.num_captured == 0

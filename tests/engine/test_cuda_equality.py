"""The CUDA device in float32 equals transformers' ``generate`` token for token, and in 16 bits within rounding: on a
GPU where there is one, and everywhere its own code on the CPU, with flash-attn stood in for by what it is documented
to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from mindserve_engine.native import runner
from mindserve_engine.native.device import cuda, registry
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.device.cuda import CudaDevice
from mindserve_engine.native.device.cuda_attention import FLASH_BLOCK_SIZE
from mindserve_engine.native.runner import LoadedModel
from mindserve_engine.options import EngineOptions
from tests import tiny_chatglm
from tests.bench.device import CHECKED, TOLERANCE, compare, write_random_model
from tests.cuda_host import FlashPackage, HostCuda
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, assert_continues, generate, load, prompts_for, random_prompts, reference

PairOf = Callable[[str], Pair]
KINDS = ("gathered", "flash", "gpu")
NARROW_KINDS = ("gathered", "flash", "gpu gathered", "gpu flash")
NARROW = ("bfloat16", "float16")
LENGTHS = (1, 2, 15, 16, 17, 33, 70, 110, 256, 257, 300)
"""Around the edges of blocks."""
NUM_TOKENS = 16


def device_of(kind: str) -> Device:
    if kind == "gpu":
        need_gpu()
        return cuda.create(EngineOptions(model_path=Path(), dtype="float32", block_size=16))
    return HostCuda(block_size=16) if kind == "gathered" else HostCuda(block_size=256, package=FlashPackage())


def need_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU, or torch is a build without CUDA")


def narrow_device_of(kind: str, dtype: str) -> CudaDevice:
    if not kind.startswith("gpu"):
        host = device_of(kind)
        assert isinstance(host, CudaDevice)
        return host
    need_gpu()
    if dtype == "bfloat16" and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip(f"{torch.cuda.get_device_name()} has no bfloat16")
    with pytest.MonkeyPatch.context() as patch:
        if kind == "gpu gathered":
            patch.setattr(cuda, "_flash_attention", lambda *_given: None)
        made = cuda.create(EngineOptions(model_path=Path(), dtype=dtype))
    if kind == "gpu flash" and made.block_size != FLASH_BLOCK_SIZE:
        pytest.skip("flash-attn is not installed, or has no kernels for this GPU: the log says which")
    return made


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    return device_of(request.param)


def load_on(device: Device, path: Path, **options: Any) -> LoadedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "create_device", lambda _options: device)
        return load(path, **options)


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


@pytest.fixture(scope="module")
def narrow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights are bfloat16's: float32 computes with the same."""
    return write_random_model(tmp_path_factory.mktemp("narrow"), CHECKED)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", NARROW_KINDS)
def test_logits_in_sixteen_bits(monkeypatch: pytest.MonkeyPatch, narrow_model: Path, kind: str, dtype: str) -> None:
    """Prompts side by side and decode steps, captured where flash-attn is, over the same tokens as float32 on the
    CPU: within rounding."""
    device = narrow_device_of(kind, dtype)

    def create(options: EngineOptions) -> Device:
        return registry.create_device(options) if options.device == "cpu" else device

    monkeypatch.setattr(runner, "create_device", create)
    compared = compare("random", narrow_model, "cuda", dtype, num_decoded=8)
    assert compared.is_right, compared
    assert (device.graphs is not None) == ("flash" in kind)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", NARROW_KINDS)
def test_tokens_in_sixteen_bits(narrow_model: Path, kind: str, dtype: str) -> None:
    """The whole engine: chunks with history beside decode rows, then captured steps over the borders of blocks. Each
    token is the best in float32 too, or as good within rounding."""
    prompts = random_prompts((3, 300, 250, 120, 127), vocab_size=CHECKED.vocab_size, seed=5)
    loaded = load_on(narrow_device_of(kind, dtype), narrow_model, dtype=dtype)
    told = generate(loaded, prompts, NUM_TOKENS, max_step_tokens=100)
    theirs: Any = AutoModelForCausalLM.from_pretrained(narrow_model, dtype=torch.float32)
    for prompt, tokens in zip(prompts, told, strict=True):
        assert len(tokens) == NUM_TOKENS
        with torch.inference_mode():
            logits = theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        assert float((logits.amax(-1) - chosen).max()) <= 2 * TOLERANCE[dtype] * float(logits.abs().max())
    graphs = getattr(loaded.runner, "graphs", None)
    assert (graphs is not None and graphs.sizes == [1, 2, 4, 8, 16]) == ("flash" in kind)


def test_gathered_decode_is_not_captured(tiny_pair: PairOf) -> None:
    device = HostCuda(block_size=16)
    load_on(device, tiny_pair("llama").path)
    assert device.graphs is None
    assert device.host_graphs.num_captured == 0

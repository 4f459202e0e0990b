"""The CUDA device's parts that need no GPU, and what is said where one is missing."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native import runner
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device import cuda, cuda_attention
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec
from mindserve_engine.native.device.card_memory import CardMemory
from mindserve_engine.native.device.cuda_attention import FlashAttention, try_out
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.options import EngineOptions
from tests import tiny_chatglm, tiny_models
from tests.cuda_host import SIGNATURES, VERSION, FlashPackage, Gpu, HostCuda, HostFigures, signature
from tests.engine.drive import load

HEADS = AttentionShape(heads=4, kv_heads=2, head_dim=64)
SPEC = AttentionSpec(scale=0.125)


def options(**fields: Any) -> EngineOptions:
    return EngineOptions(model_path=Path(), device="cuda", **fields)


def refused(**fields: Any) -> str:
    with pytest.raises(EngineError) as caught:
        cuda.create(options(**fields))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_build_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is a build without CUDA" in refused()


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, count=0)
    assert refused().startswith("device: cuda: no GPU is visible")
    Gpu(monkeypatch, count=2)
    assert refused(device_ids=[2]) == "npuDeviceIds: 2 is not among the 2 visible devices"


def test_what_the_options_ask_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, capability=(7, 0))
    assert refused() == "dtype: bfloat16 is not available on Tesla V100, float16 and float32 are"
    assert refused(dtype="int4") == "dtype: int4 is not available on Tesla V100, float16 and float32 are"
    assert refused(dtype="float16", deterministic=True) == "deterministic: is not available on cuda"
    assert "cacheBlockSize: 24 is not a multiple of 16" in refused(dtype="float32", block_size=24)


def test_flash_attn_decides_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch)
    monkeypatch.setattr(cuda, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, "flash_attn", types.ModuleType("flash_attn"))
    monkeypatch.setattr(cuda, "try_out", lambda *_given: None)
    assert cuda.create(options(block_size=128)).block_size == 256
    assert "only 128, which stands for its blocks of 256" in refused(block_size=64)
    assert cuda.create(options(block_size=64, dtype="float32")).block_size == 64, "which flash-attn does not compute"


def test_a_flash_attn_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    broken = tmp_path / "flash_attn.py"
    broken.write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    Gpu(monkeypatch)
    assert cuda.create(options(block_size=64)).block_size == 64
    assert "flash-attn cannot be loaded (ImportError: undefined symbol)" in caplog.text


class NoKernels(FlashPackage):
    """A build for other GPUs."""

    def flash_attn_with_kvcache(self, *args: Any, **kwargs: Any) -> Tensor:
        super().flash_attn_with_kvcache(*args, **kwargs)
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore lines")


def test_a_flash_attn_without_kernels_for_the_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tried once at the start, both ways; the start goes on with torch's own operators and says why."""
    Gpu(monkeypatch)
    package: Any = NoKernels()
    monkeypatch.setattr(cuda, "find_spec", lambda _name: object())
    monkeypatch.setattr(cuda, "import_module", lambda _name: package)
    monkeypatch.setattr(cuda, "try_out", lambda flash, _device, dtype: try_out(flash, torch.device("cpu"), dtype))
    assert cuda.create(options(block_size=64)).block_size == 64
    assert package.calls == ["flash_attn_varlen_func", "flash_attn_with_kvcache"]
    said = "flash-attn does not run on this GPU (RuntimeError: CUDA error: no kernel image is available for execution"
    assert said in caplog.text
    package = FlashPackage()
    assert cuda.create(options(block_size=128, dtype="float16")).block_size == 256


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: tuple[Any, Any] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    Gpu(monkeypatch)
    try:
        for backend in backends:
            backend.allow_tf32 = True
        cuda.create(options(dtype="float32"))
        assert not any(backend.allow_tf32 for backend in backends)
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_of_the_installed_package(name: str) -> None:
    """Checked in from the source of one release; where the package is installed, it must be the same."""
    package = pytest.importorskip("flash_attn", reason=f"flash-attn is not installed; the signatures are {VERSION}'s")
    assert list(inspect.signature(getattr(package, name)).parameters) == list(signature(name).parameters)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "fits"),
    [
        (64, torch.bfloat16, True),
        (64, torch.float16, True),
        (64, torch.float32, False),
        (256, torch.bfloat16, True),
        (264, torch.bfloat16, False),
        (60, torch.bfloat16, False),
    ],
)
def test_what_flash_attn_computes(head_dim: int, dtype: torch.dtype, fits: bool) -> None:
    assert FlashAttention(FlashPackage()).fits(head_dim, dtype) == fits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("flash", [False, True])
def test_the_self_test_passes(dtype: torch.dtype, flash: bool) -> None:
    device = HostCuda(block_size=256, package=FlashPackage() if flash else None)
    device.self_test(HEADS, dtype, SPEC)
    assert device.package is None or set(device.package.calls) == set(SIGNATURES), "prompts and decode rows"


def test_the_self_test_finds_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    package = FlashPackage()
    right = package.flash_attn_varlen_func
    monkeypatch.setattr(
        package, "flash_attn_varlen_func", lambda *args, **kwargs: right(*args, **{**kwargs, "causal": False})
    )
    device = HostCuda(block_size=256, package=package)
    with pytest.raises(EngineError, match=r"self-test: attention \(prefill\) is off by"):
        device.self_test(HEADS, torch.float32, SPEC)


MISTAKES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "the first block read for all": lambda given: {"block_table": given["block_table"][:, :1].repeat(1, 9)},
    "lengths of a step before": lambda given: {"cache_seqlens": given["cache_seqlens"] - 1},
    "another scale": lambda given: {"softmax_scale": 1.0},
    "a window": lambda given: {"window_size": (256, 0)},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_self_test_finds_wrong_decode_steps(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Prompts are right: another function of the package computes them."""
    package = FlashPackage()
    right = package.flash_attn_with_kvcache
    monkeypatch.setattr(
        package, "flash_attn_with_kvcache", lambda *args, **given: right(*args, **{**given, **MISTAKES[name](given)})
    )
    device = HostCuda(block_size=256, package=package)
    with pytest.raises(EngineError, match=r"self-test: attention \(decode.*\) is off by"):
        device.self_test(HEADS, torch.bfloat16, SPEC)


class WideMistakes(HostCuda):
    """In rows of other widths than the test's own."""

    def __init__(self, operator: str) -> None:
        super().__init__(block_size=16)
        self.operator = operator

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        right = super().norm(x, weight, eps)
        return right * 2 if self.operator == "norm" and x.shape[-1] not in (256, 64) else right

    def swiglu(self, gate_up: Tensor) -> Tensor:
        right = super().swiglu(gate_up)
        return right * 2 if self.operator == "swiglu" and gate_up.shape[-1] != 256 else right


@pytest.mark.parametrize("operator", ["norm", "swiglu"])
def test_the_self_test_knows_the_widths_of_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, operator: str
) -> None:
    monkeypatch.setattr(runner, "create_device", lambda _options: WideMistakes(operator))
    with pytest.raises(EngineError, match=rf"self-test: (the )?{operator}.* is off by"):
        load(tiny_models.build("llama", tmp_path, hidden_size=128))


class WrongElsewhere(HostCuda):
    def __init__(self, *, linear: bool = False, copies: bool = False) -> None:
        super().__init__(block_size=16)
        self.is_linear_wrong, self.are_copies_wrong = linear, copies

    def linear(self, weight: Any, bias: Tensor | None, dtype: torch.dtype) -> Any:
        return super().linear(weight, None if self.is_linear_wrong else bias, dtype)

    def copy_blocks(self, caches: list[Any], pairs: list[tuple[int, int]]) -> None:
        super().copy_blocks(caches[:1] if self.are_copies_wrong else caches, pairs)


@pytest.mark.parametrize(("mistake", "name"), [("linear", "a linear layer"), ("copies", "a copy of blocks")])
def test_the_self_test_knows_all_that_the_device_does(mistake: str, name: str) -> None:
    with pytest.raises(EngineError, match=f"self-test: {name} is off by"):
        WrongElsewhere(**{mistake: True}).self_test(HEADS, torch.bfloat16, SPEC)


SAMPLING_MISTAKES: dict[str, Callable[..., Any]] = {
    "topk": lambda right, x, k, **given: right(-x, k, **given),
    "log_softmax": lambda right, x, **given: right(x, **given) * 1.1,
}


@pytest.mark.parametrize("operator", SAMPLING_MISTAKES)
def test_the_self_test_samples(monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    """On the device one of torch's operators is wrong; the reference has the right one."""
    device, sample, right = HostCuda(block_size=16), Sampler.sample, getattr(Tensor, operator)

    def wrong(*given: Any, **named: Any) -> Any:
        return SAMPLING_MISTAKES[operator](right, *given, **named)

    def sampling(self: Sampler, logits: Tensor, rows: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            if self._host_buffer == device.host_buffer:
                for place in (Tensor, torch):
                    patch.setattr(place, operator, wrong)
            return sample(self, logits, rows)

    monkeypatch.setattr(Sampler, "sample", sampling)
    with pytest.raises(EngineError, match=r"self-test: (sampling|log-probabilities) is off by"):
        device.self_test(HEADS, torch.bfloat16, SPEC)


KINDS = [
    AttentionSpec(scale=0.2, window=1000),
    AttentionSpec(scale=0.125, softcap=1.5),
    AttentionSpec(scale=0.125, window=7, softcap=2.0),
    AttentionSpec(scale=0.125, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
]


@pytest.mark.parametrize("spec", KINDS, ids=str)
@pytest.mark.parametrize("flash", [False, True])
def test_the_self_test_knows_all_kinds_of_attention(flash: bool, spec: AttentionSpec) -> None:
    device = HostCuda(block_size=256, package=FlashPackage() if flash else None)
    device.self_test(HEADS, torch.float32, spec)
    assert (device.graphs is not None) == (flash and spec.sinks is None)


@pytest.mark.parametrize(("key", "name"), [("window_size", "mistral-window"), ("softcap", "gemma2")])
def test_models_of_transformers_are_tested_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str, name: str
) -> None:
    """With the windows and caps that their layers ask for, which a kernel may pass over."""
    ignored = {"window_size": (-1, -1), "softcap": 0.0}[key]
    package = FlashPackage()
    right = package.flash_attn_with_kvcache
    monkeypatch.setattr(
        package, "flash_attn_with_kvcache", lambda *args, **given: right(*args, **{**given, key: ignored})
    )
    monkeypatch.setattr(runner, "create_device", lambda _options: HostCuda(block_size=256, package=package))
    with pytest.raises(EngineError, match="self-test: attention"):
        load(tiny_models.build(name, tmp_path))


def test_models_of_transformers_are_not_captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = HostCuda(block_size=256, package=FlashPackage())
    monkeypatch.setattr(runner, "create_device", lambda _options: device)
    loaded: Any = load(tiny_models.build("gemma2", tmp_path))
    assert loaded.runner.graphs is None
    assert device.host_graphs.num_captured == 0


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize(("said", "held"), [("float16", torch.float16), ("float32", torch.bfloat16)])
@pytest.mark.parametrize("tiny", [tiny_chatglm.build, partial(tiny_models.build, "llama")], ids=["chatglm", "llama"])
def test_auto_is_the_models_type_where_that_is_float16(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Any, said: str, held: torch.dtype, key: str
) -> None:
    """On cards; the CPU, which has its own arithmetic for either, stays with bfloat16."""
    config = tiny(tmp_path / "model") / "config.json"
    written = json.loads(config.read_text())
    written.pop("dtype", None)
    written.pop("torch_dtype", None)
    config.write_text(json.dumps({**written, key: said}))
    assert load(config.parent, dtype="auto").info.weights == "bfloat16"
    monkeypatch.setattr(runner, "create_device", lambda _options: HostCuda(block_size=16))
    loaded: Any = load(config.parent, dtype="auto")
    assert loaded.runner.dtype == held


def test_long_prompts_are_gathered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of a chunk over a long context would not fit."""
    whole, sliced = HostCuda(block_size=16), HostCuda(block_size=16)
    monkeypatch.setattr(cuda_attention, "_GATHERED_ELEMENTS", 4 * 50 * 7)
    sliced.self_test(HEADS, torch.float32, AttentionSpec(scale=0.125, window=9))
    monkeypatch.undo()
    whole.self_test(HEADS, torch.float32, AttentionSpec(scale=0.125, window=9))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("spec", [SPEC, *KINDS], ids=str)
def test_what_others_left_in_the_blocks_is_never_read(spec: AttentionSpec, poison: float) -> None:
    """Of gathered attention: in the blocks that a sequence took over, and in the first, which stands in the columns of
    the table that a shorter sequence does not have."""
    torch.manual_seed(3)
    query, key, value = torch.randn(3, 4, 64), torch.randn(80, 2, 64), torch.randn(80, 2, 64)

    def mixed(left: float, query_ends: list[int], lengths: list[int]) -> Tensor:
        device = HostCuda(block_size=16)
        [cache] = device.kv_cache(
            num_layers=1, num_blocks=5, block_size=16, kv_heads=2, head_dim=64, dtype=torch.float32
        )
        for half, written in zip(cache, (key, value), strict=True):
            half.fill_(left)
            half[1:].flatten(0, 1)[[*range(37), *range(48, 51)]] = written[:40]
        batch = StepBatch(
            token_ids=[0] * 3,
            positions=[0] * 3,
            slots=[0] * 3,
            query_ends=query_ends,
            kv_lengths=lengths,
            block_tables=[[1, 2, 3], [4]] if len(lengths) == 2 else [[1, 2, 3], [4], [4]],
        )
        return device.attention(query, key, value, cache, device.upload(batch), spec)

    for query_ends, lengths in (([1, 2, 3], [37, 3, 1]), ([2, 3], [37, 3])):
        torch.testing.assert_close(mixed(poison, query_ends, lengths), mixed(0.0, query_ends, lengths))


class Card(HostFigures):
    """A GPU that others use too."""

    def __init__(self) -> None:
        self.others, self.weights, self.graphs, self.outside = 3 << 30, 0, 0, 0
        self.peak = 0

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        total = 24 << 30
        return total - self.others - self.outside - self.memory_reserved(device), total

    def memory_reserved(self, device: torch.device) -> int:
        return self.weights + self.graphs

    def memory_stats(self, device: torch.device) -> dict[str, int]:
        return {"allocated_bytes.all.peak": self.peak}


def test_memory_of_graphs_and_of_the_widest_step_is_left_free() -> None:
    card = Card()
    memory = CardMemory(card, torch.device("cpu"))
    card.weights = 5 << 30

    def widest_steps() -> int:
        card.peak = card.weights + (2 << 30) + (1 << 30)
        card.outside = 1 << 29
        return 1 << 30

    @contextmanager
    def captured() -> Iterator[int]:
        card.graphs = (3 << 29) + (1 << 20)
        yield 1 << 20
        card.graphs = 0

    room = memory.cache_room(0.75, widest_steps, captured)
    assert room.free_bytes == (18 << 30) - (7 << 30) - (3 << 29) - (1 << 29)
    assert memory.cache_room(1.0, widest_steps, captured).free_bytes == (21 << 30) - (7 << 30) - (2 << 30)

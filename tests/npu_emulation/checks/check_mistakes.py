"""The emulated device refuses, or shows, each of the mistakes that a real one would punish."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device import npu_attention
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec
from mindserve_engine.native.device.npu import NpuDevice
from tests.npu_emulation import references
from tests.npu_emulation.graph import NPUGraph, graph
from tests.npu_emulation.plugin import MODULE
from tests.npu_emulation.tensors import CaptureError, Emulator, NpuError

HALF: Final = torch.bfloat16
SHAPE: Final = AttentionShape(heads=4, kv_heads=2, head_dim=64)
SPEC: Final = AttentionSpec(scale=0.125)


@pytest.fixture
def package() -> Any:
    import torch_npu

    return torch_npu


def on_npu(*sizes: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype, device="npu")


def attend(package: Any, **changes: Any) -> Any:
    """One decode row, and what differs from a right call."""
    settings = {
        "atten_mask": torch.ones(2048, 2048, dtype=torch.int8).triu(1).to("npu"),
        "block_table": torch.zeros(1, 1, dtype=torch.int32).to("npu"),
        "block_size": 128,
        "input_layout": "TND",
        "actual_seq_lengths": [1],
        "actual_seq_lengths_kv": [1],
        "num_heads": 2,
        "num_key_value_heads": 2,
        "sparse_mode": 3,
    }
    cache = on_npu(4, changes.get("block_size", 128), 128)
    return package.npu_fused_infer_attention_score(on_npu(1, 2, 64), cache, cache, **{**settings, **changes})


def write(package: Any, slots: list[int], **settings: Any) -> None:
    new, cache = on_npu(len(slots), 2, 64), on_npu(4, 128, 2, 64)
    package.npu_scatter_pa_kv_cache(new, new, cache, cache.clone(), torch.tensor(slots).to("npu"), **settings)


def capturing(work: Callable[[], object]) -> None:
    with graph(NPUGraph(), auto_dispatch_capture=True):
        work()


REFUSED: Final[dict[str, tuple[Callable[[Any], object], type[Exception], str]]] = {
    "a weight on the host": (
        lambda p: p.npu_rms_norm(on_npu(2, 64), torch.ones(64, dtype=HALF)),
        NpuError,
        "same device",
    ),
    "all on the host": (
        lambda p: p.npu_rms_norm(torch.ones(2, 64), torch.ones(64)),
        NotImplementedError,
        "from the 'CPU' backend",
    ),
    "a sum of host and device": (lambda p: on_npu(2, 64) + torch.ones(2, 64, dtype=HALF), NpuError, "same device"),
    "two types": (lambda p: p.npu_rms_norm(on_npu(2, 64), on_npu(64, dtype=torch.float32)), NpuError, "type"),
    "an unknown keyword": (lambda p: p.npu_rms_norm(on_npu(2, 64), on_npu(64), eps=1e-6), RuntimeError, "eps"),
    "the documents' name self": (
        lambda p: p.npu_rms_norm(self=on_npu(2, 64), gamma=on_npu(64)),
        RuntimeError,
        "argument",
    ),
    "float64": (lambda p: on_npu(2, dtype=torch.float64), NpuError, "float64"),
    "widened to float64": (lambda p: on_npu(2).to(torch.float64), NpuError, "float64"),
    "numpy": (lambda p: on_npu(2).numpy(), TypeError, "numpy"),
    "item while capturing": (lambda p: capturing(lambda: on_npu(2).sum().item()), CaptureError, "waits"),
    "a copy to the device while capturing": (
        lambda p: capturing(lambda: torch.ones(2).to("npu")),
        CaptureError,
        "from the host",
    ),
    "the default cache mode": (lambda p: write(p, [0]), NpuError, "Norm"),
    "slots twice": (lambda p: write(p, [3, 3], cache_mode="Norm"), NpuError, "unique"),
    "a slot outside": (lambda p: write(p, [512], cache_mode="Norm"), NpuError, "lie in the cache"),
    "slot -1": (lambda p: write(p, [-1], cache_mode="Norm"), NpuError, "lie in the cache"),
    "blocks of 16": (lambda p: attend(p, block_size=16), NpuError, "blocks of 128"),
    "no mask": (lambda p: attend(p, atten_mask=None), NpuError, "mask"),
    "a mask the wrong way round": (
        lambda p: attend(p, atten_mask=torch.ones(2048, 2048, dtype=torch.int8).tril().to("npu")),
        NpuError,
        "above the diagonal",
    ),
    "query ends that miss T": (lambda p: attend(p, actual_seq_lengths=[2]), NpuError, "add up to T"),
    "lengths for fewer sequences": (lambda p: attend(p, actual_seq_lengths_kv=[]), NpuError, "for each sequence"),
    "a narrow block table": (lambda p: attend(p, actual_seq_lengths_kv=[300]), NpuError, "too narrow"),
    "a block outside": (
        lambda p: attend(p, block_table=torch.full((1, 1), 9, dtype=torch.int32).to("npu")),
        NpuError,
        "blocks lie in the cache",
    ),
    "an int64 block table": (
        lambda p: attend(p, block_table=torch.zeros(1, 1, dtype=torch.int64).to("npu")),
        NpuError,
        "int32",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def check_it_is_refused(package: Any, name: str) -> None:
    mistake, kind, says = REFUSED[name]
    with pytest.raises(kind, match=says):
        mistake(package)


def check_a_right_call_is_not_refused(package: Any) -> None:
    write(package, [0, 511], cache_mode="Norm")
    assert attend(package)[0].shape == (1, 2, 64)


def check_more_blocks_than_the_cache_has_are_refused_at_the_start(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four are there, and five are read, one of them again and again: as a shared prefix is in service."""
    reading = {"block_table": torch.zeros(1, 5, dtype=torch.int32).to("npu"), "actual_seq_lengths_kv": [513]}
    attend(package, **reading)
    monkeypatch.setattr(references, "counts_blocks", True)
    attend(package, **{**reading, "actual_seq_lengths_kv": [512]})
    with pytest.raises(NpuError, match="fewer blocks"):
        attend(package, **reading)


def check_waiting_is_counted(emulator: Emulator) -> None:
    x = on_npu(3)
    waits: list[Callable[[], object]] = [
        lambda: bool((x > 0).any()),
        lambda: x[0].item(),
        lambda: float(x[0]),
        lambda: x[x > 0],
        lambda: x[torch.tensor([1])],
        x.cpu,
        x.tolist,
    ]
    for number, wait in enumerate(waits):
        emulator.waits.clear()
        wait()
        assert emulator.waits, number
    emulator.waits.clear()
    torch.relu(x[:2] + x[1:]).view(-1)
    assert not emulator.waits


def check_views_share_memory_and_in_place_work_reaches_them() -> None:
    x = torch.zeros(2, 3, device="npu")
    x[1].fill_(2)
    x.view(-1)[0:1].add_(5)
    assert x.tolist() == [[5, 0, 0], [2, 2, 2]]


def check_a_replay_keeps_numbers_of_the_host_unless_they_are_updated(package: Any) -> None:
    cache = torch.arange(256.0).to(HALF).repeat_interleave(128).view(1, 256, 128)[:, :128].contiguous().to("npu")
    settings = {
        "atten_mask": torch.ones(2048, 2048, dtype=torch.int8).triu(1).to("npu"),
        "block_table": torch.zeros(1, 1, dtype=torch.int32).to("npu"),
        "block_size": 128,
        "input_layout": "TND",
        "num_heads": 2,
        "num_key_value_heads": 2,
        "sparse_mode": 3,
        "scale": 0.0,
    }
    query, captured = on_npu(1, 2, 64), NPUGraph()
    with graph(captured, auto_dispatch_capture=True):
        out = package.npu_fused_infer_attention_score(
            query, cache, cache, actual_seq_lengths=[1], actual_seq_lengths_kv=[1], **settings
        )
    captured.replay()
    assert out[0][0, 0, 0].item() == 0, "the mean of the first value"
    captured.update([{"actual_seq_lengths_kv": [3]}])
    captured.replay()
    with pytest.raises(CaptureError, match="overtake"):
        captured.update([{"actual_seq_lengths_kv": [5]}])
    assert out[0][0, 0, 0].item() == 1, "the mean of the first three"
    captured.replay()
    assert out[0][0, 0, 0].item() == 1


def check_a_graph_captured_plainly_cannot_be_updated() -> None:
    captured = NPUGraph()
    with graph(captured):
        on_npu(2).add_(1)
    with pytest.raises(CaptureError, match="auto_dispatch_capture"):
        captured.update([{}])


# Mistakes in our own calls: the self-test at the start finds each.


def wrapped(package: Any, **changes: Callable[..., Any]) -> Any:
    """The package with some operators called wrongly."""
    names = [name for name in dir(package) if name.startswith("npu_")]
    return SimpleNamespace(**{name: changes.get(name, getattr(package, name)) for name in names})


def _attention(package: Any, **forced: Any) -> Callable[..., Any]:
    def call(*tensors: Any, **settings: Any) -> Any:
        given = {name: change(settings[name]) if callable(change) else change for name, change in forced.items()}
        return package.npu_fused_infer_attention_score(*tensors, **{**settings, **given})

    return call


def _cumulative(lengths: list[int]) -> list[int]:
    return [sum(lengths[: number + 1]) for number in range(len(lengths))]


def _third_for_second(table: torch.Tensor) -> torch.Tensor:
    columns = [0, 2, *range(2, table.shape[1])] if table.shape[1] > 2 else range(table.shape[1])
    return torch.stack([table[:, column] for column in columns], dim=1)


def _short_decode(package: Any) -> Callable[..., Any]:
    """Only where each sequence has one new token."""

    def call(query: Any, *tensors: Any, **settings: Any) -> Any:
        lengths = settings["actual_seq_lengths_kv"]
        if len(query) == len(lengths):
            settings["actual_seq_lengths_kv"] = [min(length, 256) for length in lengths]
        return package.npu_fused_infer_attention_score(query, *tensors, **settings)

    return call


def _reads_behind(package: Any) -> Callable[..., Any]:
    """One key that is not there yet, only where each sequence has one new token: among a hundred it hides."""

    def call(query: Any, *tensors: Any, **settings: Any) -> Any:
        lengths = settings["actual_seq_lengths_kv"]
        if len(query) == len(lengths):
            settings["actual_seq_lengths_kv"] = [length + (length % 128 > 0) for length in lengths]
        return package.npu_fused_infer_attention_score(query, *tensors, **settings)

    return call


def _keeps_inputs(package: Any) -> Callable[..., Any]:
    def call(query: Any, key: Any, *others: Any) -> Any:
        package.npu_apply_rotary_pos_emb(query, key, *others)
        return query, key

    return call


MUTATIONS: Final[dict[str, Callable[[Any], dict[str, Callable[..., Any]]]]] = {
    "cache mode left out": lambda p: {
        "npu_scatter_pa_kv_cache": lambda *tensors, cache_mode: p.npu_scatter_pa_kv_cache(*tensors)
    },
    "keys and values swapped": lambda p: {
        "npu_scatter_pa_kv_cache": lambda k, v, *others, cache_mode: p.npu_scatter_pa_kv_cache(
            v, k, *others, cache_mode=cache_mode
        )
    },
    "cumulative lengths over blocks": lambda p: {
        "npu_fused_infer_attention_score": _attention(p, actual_seq_lengths_kv=_cumulative)
    },
    "no mask": lambda p: {"npu_fused_infer_attention_score": _attention(p, atten_mask=None)},
    "not causal": lambda p: {"npu_fused_infer_attention_score": _attention(p, sparse_mode=0)},
    "another scale": lambda p: {"npu_fused_infer_attention_score": _attention(p, scale=1.0)},
    "block tables of others": lambda p: {
        "npu_fused_infer_attention_score": _attention(p, block_table=lambda table: table.flip(0))
    },
    "the first block read for all": lambda p: {
        "npu_fused_infer_attention_score": _attention(
            p, block_table=lambda table: table[:, :1].repeat(1, len(table[0]))
        )
    },
    "the third block read for the second": lambda p: {
        "npu_fused_infer_attention_score": _attention(p, block_table=_third_for_second)
    },
    "no more than two blocks read by decode": lambda p: {"npu_fused_infer_attention_score": _short_decode(p)},
    "a key behind the end read by decode": lambda p: {"npu_fused_infer_attention_score": _reads_behind(p)},
    "up before gate": lambda p: {"npu_swiglu": lambda x: p.npu_swiglu(torch.cat(x.chunk(2, -1)[::-1], -1))},
    "the outputs of add_rms_norm swapped": lambda p: {
        "npu_add_rms_norm": lambda *given: tuple(reversed(p.npu_add_rms_norm(*given)))
    },
    "another epsilon": lambda p: {"npu_rms_norm": lambda x, gamma, epsilon: p.npu_rms_norm(x, gamma, 0.5)},
    "queries used after they were rotated in place": lambda p: {"npu_apply_rotary_pos_emb": _keeps_inputs(p)},
    "sines for cosines": lambda p: {
        "npu_apply_rotary_pos_emb": lambda q, k, cos, sin, *others: p.npu_apply_rotary_pos_emb(q, k, sin, cos, *others)
    },
}


@pytest.mark.parametrize("name", list(MUTATIONS))
def check_the_self_test_finds_it(package: Any, name: str) -> None:
    device = NpuDevice(wrapped(package, **MUTATIONS[name](package)), MODULE, 0)
    with pytest.raises(EngineError, match="self-test"):
        device.self_test(SHAPE, HALF, SPEC)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [SHAPE, AttentionShape(8, 1, 128), AttentionShape(2, 2, 192)], ids=str)
def check_the_self_test_passes(package: Any, shape: AttentionShape, dtype: torch.dtype) -> None:
    NpuDevice(package, MODULE, 0).self_test(shape, dtype, AttentionSpec(scale=shape.head_dim**-0.5))


def check_the_mask_is_the_documented_one(package: Any) -> None:
    attention = npu_attention.NpuAttention(package, torch.device("npu", 0))
    assert attention._mask.shape == (2048, 2048)

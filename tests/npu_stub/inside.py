"""The real torch_npu, imported over the stub: what it registers, and the shapes that its own functions give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.npu_operators import NpuRuntime
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.options import EngineOptions
from tests.npu_emulation.manifest import SCHEMAS, VERSION

Shapes = list[tuple[int, ...]]


def meta(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def attention(package: Any) -> Any:
    return package.npu_fused_infer_attention_score(
        meta(7, 4, 64),
        meta(8, 128, 128),
        meta(8, 128, 128),
        atten_mask=meta(2048, 2048, dtype=torch.int8),
        block_table=meta(1, 4, dtype=torch.int32),
        block_size=128,
        input_layout="TND",
        actual_seq_lengths=[7],
        actual_seq_lengths_kv=[7],
        num_heads=4,
        num_key_value_heads=2,
        scale=0.125,
        sparse_mode=3,
    )[0]


CALLS: dict[str, tuple[Callable[[Any], Any], Shapes]] = {
    "norm": (lambda p: p.npu_rms_norm(meta(7, 256), meta(256), 1e-6), [(7, 256), (7, 1)]),
    "norm of a sum": (
        lambda p: p.npu_add_rms_norm(meta(7, 256), meta(7, 256), meta(256), 1e-6),
        [(7, 256), (7, 1), (7, 256)],
    ),
    "rotation": (
        lambda p: p.npu_apply_rotary_pos_emb(
            meta(7, 4, 64), meta(7, 2, 64), meta(7, 1, 64), meta(7, 1, 64), "TND", "half"
        ),
        [(7, 4, 64), (7, 2, 64)],
    ),
    "rotation of one": (
        lambda p: p.npu_rotary_mul(meta(1, 7, 4, 64), meta(1, 7, 1, 64), meta(1, 7, 1, 64)),
        [(1, 7, 4, 64)],
    ),
    "swiglu": (lambda p: p.npu_swiglu(meta(7, 1024)), [(7, 512)]),
    "cache": (
        lambda p: p.npu_scatter_pa_kv_cache(
            meta(7, 2, 64),
            meta(7, 2, 64),
            meta(8, 128, 2, 64),
            meta(8, 128, 2, 64),
            meta(7, dtype=torch.int32),
            cache_mode="Norm",
        ),
        [],
    ),
    "attention": (attention, [(7, 4, 64)]),
}
"""As the engine calls them, and the shapes that it counts on."""


def check_runtime() -> None:
    """The names of ``torch.npu`` and its graphs that the engine uses, private ones among them: they may change."""
    from torch_npu.npu import graphs

    missing = [name for name in _names_of(NpuRuntime) if not hasattr(torch.npu, name)]
    assert missing == [], missing
    wanted = {"pool", "auto_dispatch_capture", "capture_error_mode"}
    given = inspect.signature(torch.npu.graph.__init__).parameters
    assert wanted <= set(given), sorted(given)
    source = inspect.getsource(graphs)
    for attribute in ("self.capture_stream =", "self.stream_ctx =", "self.graph_dispatch_mode ="):
        assert attribute in source, attribute
    assert {"replay", "reset", "update"} <= set(dir(torch.npu.NPUGraph))
    assert "cpu_update_input" in inspect.signature(torch.npu.NPUGraph.update).parameters
    assert "npu_fused_infer_attention_score.default" in graphs._NPU_GRAPH_OP_HANDLERS


def _names_of(protocol: type) -> list[str]:
    own = {name for one in protocol.__mro__[:-3] for name in (*vars(one), *getattr(one, "__annotations__", {}))}
    return sorted(name for name in own if not name.startswith("_"))


def main() -> None:
    refused = ""
    try:
        create_device(EngineOptions(model_path=Path(), device="npu"))
    except EngineError as error:
        refused = str(error)
    assert "no NPU is visible" in refused, refused
    import torch_npu

    assert torch_npu.__version__.startswith(VERSION), torch_npu.__version__
    assert not torch.npu.is_available()
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        registered = str(getattr(torch.ops.npu, name).default._schema)
        assert registered == str(torch._C.parse_schema(f"npu::{schema}")), registered
    for name, (call, shapes) in CALLS.items():
        result = call(torch_npu)
        tensors = result if isinstance(result, (tuple, list)) else [result]
        given = [tuple(one.shape) for one in tensors if one is not None]
        assert given == shapes, (name, given)
    check_runtime()
    assert torch.ones(2).sum().item() == 2, "the CPU goes on"
    print(f"torch_npu {torch_npu.__version__}: {len(SCHEMAS)} signatures and {len(CALLS)} shapes are as expected")


if __name__ == "__main__":
    main()

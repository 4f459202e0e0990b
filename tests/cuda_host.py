"""The CUDA device without a GPU: its own code on the CPU, over what its packages are documented to do.

``flash_attn`` is stood in for by functions of the published signatures, in plain torch, that refuse what the package
refuses; captured work is run again as it was captured, so that a number of the host which it read stays what it was."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.device.cuda import CudaDevice
from mindserve_engine.native.device.cuda_attention import FlashAttention

VERSION: Final = "2.8.3.post2"
"""Of flash-attn, from whose source these are."""
SIGNATURES: Final = {
    "flash_attn_with_kvcache": (
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
        "return_softmax_lse=False"
    ),
    "flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, "
        "causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
        "return_attn_probs=False, block_table=None"
    ),
}
ALL_DTYPES: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})
_FREE: Final = 1 << 34


def signature(name: str) -> inspect.Signature:
    """As published."""
    [function] = ast.parse(f"def {name}({SIGNATURES[name]}): ...").body
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args]
    defaults = [ast.literal_eval(default) for default in function.args.defaults]
    given = [inspect.Parameter.empty] * (len(names) - len(defaults)) + defaults
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(one, kind, default=value) for one, value in zip(names, given, strict=True)]
    )


class FlashPackage:
    """The package ``flash_attn``."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def flash_attn_with_kvcache(self, *args: Any, **kwargs: Any) -> Tensor:
        given = self._bind("flash_attn_with_kvcache", args, kwargs)
        query, lengths = given["q"], given["cache_seqlens"]
        _check_tensors(given, given["k_cache"], given["v_cache"], lengths)
        assert query.dim() == 4
        starts = torch.arange(len(query) + 1) * query.shape[1]
        mixed = _attend(query.flatten(0, 1), given["k_cache"], given["v_cache"], starts, lengths, given)
        return mixed.view_as(query)

    def flash_attn_varlen_func(self, *args: Any, **kwargs: Any) -> Tensor:
        given = self._bind("flash_attn_varlen_func", args, kwargs)
        _check_tensors(given, given["k"], given["v"], given["cu_seqlens_q"], given["cu_seqlens_k"])
        starts, lengths = given["cu_seqlens_q"], given["cu_seqlens_k"].diff()
        assert given["max_seqlen_q"] >= int(starts.diff().max())
        assert given["max_seqlen_k"] >= int(lengths.max())
        assert type(given["max_seqlen_q"]) is type(given["max_seqlen_k"]) is int
        assert int(starts[-1]) == len(given["q"])
        return _attend(given["q"], given["k"], given["v"], starts, lengths, given)

    def _bind(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(name)
        bound = signature(name).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


def _check_tensors(given: dict[str, Any], key: Tensor, value: Tensor, *integers: Tensor) -> None:
    for numbers in (given["block_table"], *integers):
        assert numbers.dtype == torch.int32
    assert key.shape == value.shape
    assert key.shape[1] % 256 == 0, "pages are a multiple of 256"
    assert given["q"].dtype == key.dtype == value.dtype
    assert given["q"].shape[-1] == key.shape[-1] <= 256
    assert given["q"].shape[-1] % 8 == 0
    assert given["q"].shape[-2] % key.shape[2] == 0
    assert given["q"].stride(-1) == key.stride(-1) == 1
    assert given["block_table"].stride(-1) == 1


def _attend(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, lengths: Tensor, given: dict[str, Any]
) -> Tensor:
    """[T, H, D], sequence after sequence: causal from the bottom right, as documented."""
    mixed = torch.empty_like(query)
    left, right = given["window_size"]
    for number, length in enumerate(lengths.tolist()):
        rows = slice(int(starts[number]), int(starts[number + 1]))
        group = query.shape[1] // key.shape[2]
        read = [
            half[given["block_table"][number]].flatten(0, 1)[:length].repeat_interleave(group, dim=1).double()
            for half in (key, value)
        ]
        scores = torch.einsum("qhd,khd->hqk", query[rows].double(), read[0]) * given["softmax_scale"]
        if given["softcap"] > 0:
            scores = given["softcap"] * torch.tanh(scores / given["softcap"])
        distance = (
            torch.arange(length) - (torch.arange(rows.stop - rows.start) + length - (rows.stop - rows.start))[:, None]
        )
        hidden = distance > (0 if given["causal"] or right == 0 else length)
        if left >= 0:
            hidden |= distance < -left
        shares = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        mixed[rows] = torch.einsum("hqk,khd->qhd", shares, read[1]).to(query.dtype)
    return mixed


class HostStep:
    """Implements ``CapturedStep``."""

    def __init__(self, graphs: HostGraphs, run: Callable[[], Tensor]) -> None:
        self._graphs = graphs
        self._run = run
        self.output = run()

    def replay(self, kv_lengths: list[int]) -> None:
        self.output.copy_(self._run())

    def release(self) -> None:
        self._graphs.num_captured -= 1


class HostGraphs:
    """Implements ``GraphBackend``."""

    def __init__(self) -> None:
        self.num_captured = 0

    def new_pool(self) -> None:
        """All memory is the host's."""

    def capture(self, run: Callable[[], Tensor]) -> HostStep:
        self.num_captured += 1
        return HostStep(self, run)


class HostFigures:
    """What ``torch.cuda`` tells of a card that nobody uses. Operators of the CPU return when they are done."""

    def synchronize(self, device: torch.device) -> None: ...

    def empty_cache(self) -> None: ...

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return _FREE, _FREE

    def memory_reserved(self, device: torch.device) -> int:
        return 0

    def memory_stats(self, device: torch.device) -> dict[str, int]:
        return {"allocated_bytes.all.peak": 0}

    def reset_peak_memory_stats(self, device: torch.device) -> None: ...


class HostCuda(CudaDevice):
    """On the CPU."""

    def __init__(self, *, block_size: int, package: FlashPackage | None = None, has_graphs: bool = True) -> None:
        self.package = package
        flash = None if package is None else FlashAttention(package, dtypes=ALL_DTYPES)
        self.host_graphs = HostGraphs()
        graphs = self.host_graphs if has_graphs else None
        super().__init__(torch.device("cpu"), block_size=block_size, flash=flash, graphs=graphs, figures=HostFigures())


class Gpu:
    """What torch.cuda says of a machine."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, capability: tuple[int, int] = (8, 0), count: int = 1
    ) -> None:
        answers = {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "set_device": lambda _number: None,
            "get_device_capability": lambda _device: capability,
            "get_device_name": lambda _device: "Tesla V100",
            "mem_get_info": lambda _device: (1 << 30, 1 << 31),
            "memory_reserved": lambda _device: 0,
            "graph_pool_handle": lambda: (0, 0),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr(torch.version, "cuda", "13.0")

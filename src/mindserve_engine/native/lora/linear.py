"""Linear layers with adapters: the base product for all rows, additions for the rows of each adapter.

A step's batch may hold sequences of several adapters and of none. Which rows are whose is set once per step
(``ActiveAdapters``); the layers read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mindserve_engine.native.device.base import Device, Linear
from mindserve_engine.native.lora.adapter import Adapter, LoraPair, adapter_fault


@dataclass(frozen=True, slots=True)
class _Addition:
    """An adapter's part in the outputs ``start:stop`` of a layer."""

    start: int
    stop: int
    down: Linear
    up: Linear


@dataclass(slots=True)
class ActiveAdapters:
    """The rows of the running step by adapter. Shared by all layers of a model."""

    rows: dict[str, Tensor] = field(default_factory=dict)
    """[n] int64 rows of the flattened batch."""


class AdaptedLinear:
    """``base`` with the additions of any number of adapters."""

    def __init__(self, base: Linear, additions: Mapping[str, list[_Addition]], active: ActiveAdapters) -> None:
        self._base = base
        self._additions = additions
        self._active = active

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        return add(self._base(x), x, self._additions, self._active)


def add(y: Tensor, x: Tensor, additions: Mapping[str, list[_Addition]], active: ActiveAdapters) -> Tensor:
    """Add to ``y`` [T, out] what the step's adapters make of ``x`` [T, in]; in place."""
    for name, rows in active.rows.items():
        for one in additions.get(name, ()):
            delta = one.up(one.down(x[rows]))
            y[:, one.start : one.stop].index_add_(0, rows, delta.to(y.dtype))
    return y


class AdapterBank:
    """All adapters of a model, handed out layer by layer while it is built."""

    def __init__(self, adapters: Iterable[Adapter], *, dtype: torch.dtype, device: Device) -> None:
        self.active = ActiveAdapters()
        self._adapters = list(adapters)
        self._dtype = dtype
        self._device = device
        self._taken: set[str] = set()

    def adapt(self, base: Linear, parts: dict[str, int], inputs: int) -> Linear:
        """``base`` with what the adapters add to it. ``parts`` are the fused layers by full name with their numbers of
        outputs, in order."""
        additions = self.additions(parts, inputs)
        return AdaptedLinear(base, additions, self.active) if additions else base

    def additions(self, parts: dict[str, int], inputs: int) -> dict[str, list[_Addition]]:
        """By adapter; empty when none touches these layers."""
        found: dict[str, list[_Addition]] = {}
        for adapter in self._adapters:
            start = 0
            for layer, outputs in parts.items():
                pair = adapter.pairs.get(layer)
                if pair is not None:
                    _check_shape(adapter, layer, pair, (outputs, inputs))
                    self._taken.add(layer)
                    down, up = (self._linear(tensor) for tensor in (pair.down, pair.up))
                    found.setdefault(adapter.name, []).append(_Addition(start, start + outputs, down, up))
                start += outputs
        return found

    def _linear(self, weight: Tensor) -> Linear:
        return self._device.linear(weight.to(self._device.torch_device, self._dtype), None, self._dtype)

    def adapt_modules(self, model: Any) -> None:
        """Hook the adapters into the linear layers of a transformers model."""
        for layer in sorted({layer for adapter in self._adapters for layer in adapter.pairs}):
            try:
                module = model.get_submodule(layer)
            except AttributeError:
                continue  # ``check_all_taken`` tells
            # the head sees only the rows that are sampled
            if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
                additions = self.additions({layer: module.out_features}, module.in_features)
                module.register_forward_hook(_hook(additions, self.active))

    def check_all_taken(self) -> None:
        """Raise ``EngineError`` when an adapter names a layer that was never asked for."""
        for adapter in self._adapters:
            for layer in adapter.pairs:
                if layer not in self._taken:
                    reason = f"it adapts {layer}, which is no linear layer of this model that can be adapted"
                    raise adapter_fault(adapter.name, adapter.path, reason)


def _check_shape(adapter: Adapter, layer: str, pair: LoraPair, shape: tuple[int, int]) -> None:
    found = (pair.up.shape[0], pair.down.shape[1])
    if found != shape:
        reason = f"{layer} has the shape {list(found)}, the model's is {list(shape)}"
        raise adapter_fault(adapter.name, adapter.path, reason)


def _hook(additions: Mapping[str, list[_Addition]], active: ActiveAdapters) -> Callable[[Any, Any, Tensor], Tensor]:
    def hook(_module: Any, args: tuple[Tensor], output: Tensor) -> Tensor:
        """transformers' layers see [1, T, in]."""
        if active.rows:
            add(output[0], args[0][0], additions, active)
        return output

    return hook

"""Other causal models: transformers' own modules, with our attention over our paged cache put in their place.

transformers calls a registered attention function from every model that supports the interface; ours writes the step's
keys and values into the cache and attends over the flattened batch. Whether that is all a model needs (it would not be
for one with recurrent state, position biases or attention of its own) is not guessed from its name: at load the model
is run both ways on a few tokens, and one that gives other results is refused.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec, Device, DeviceBatch, LayerCache
from mindserve_engine.native.lora.linear import ActiveAdapters, AdapterBank
from mindserve_engine.native.models.base import CacheShape
from mindserve_engine.native.models.facts import ModelFacts
from mindserve_engine.native.multimodal.encoder import TowerEncoder
from mindserve_engine.options import EngineOptions

_WEIGHTS_SHARE: Final = 0.9
"""Of the progress; the rest is the check."""
_LAYER_TYPES: Final = frozenset({"full_attention", "sliding_attention"})
_CHECK_TOKENS: Final = 12
"""Fewer than the smallest block holds."""
_CHECK_CHUNK: Final = 7
"""The check computes so many tokens as a chunk and the others one by one."""
_TOLERANCE: Final = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""Of the difference relative to the logits: what rounding explains."""


@dataclass(slots=True)
class _Step:
    """What the attention function needs beside what transformers gives it."""

    batch: DeviceBatch
    caches: list[LayerCache]


@dataclass(slots=True)
class _Recording:
    """What each layer asked of attention, by layer number."""

    shapes: dict[int, CacheShape] = field(default_factory=dict)
    num_heads: dict[int, int] = field(default_factory=dict)
    specs: dict[int, AttentionSpec] = field(default_factory=dict)
    refusal: str | None = None


class TransformersModel:
    """Implements ``Model``. ``cache_shapes`` are known once ``record`` has run."""

    has_fixed_steps = False
    """Modules of transformers decide some things on the host."""

    def __init__(
        self, module: Any, device: Device, attention_name: str, dtype: torch.dtype, active: ActiveAdapters
    ) -> None:
        self._active = active
        self.dtype = self.cache_dtype = dtype
        self.weights_name = str(dtype).removeprefix("torch.")
        self.cache_shapes: tuple[CacheShape, ...] = ()
        self.encoder: TowerEncoder | None = None
        self.module = module
        self._device = device
        self._attention_name = attention_name
        self._keeps_rows = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._step: _Step | None = None
        self._recording: _Recording | None = None
        AttentionInterface.register(attention_name, self._attend)

    def logits(self, batch: DeviceBatch, caches: list[LayerCache]) -> Tensor:
        self._step = _Step(batch, caches)
        self._active.rows = batch.adapter_rows
        try:
            return self._forward(batch.token_ids, batch.positions, batch.last_rows)
        finally:
            self._step = None
            self._active.rows = {}

    def reference_logits(self, token_ids: Tensor) -> Tensor:
        """[T, vocabulary] by the model's own attention, for the check at load."""
        self.module.set_attn_implementation("eager")
        rows = torch.arange(len(token_ids), device=token_ids.device)
        logits = self._forward(token_ids, rows, rows)
        self.module.set_attn_implementation(self._attention_name)
        return logits

    def record(self, token_ids: Tensor) -> _Recording:
        """Find out what each layer keeps and how it attends."""
        self._recording = recording = _Recording()
        self.module.set_attn_implementation(self._attention_name)
        rows = torch.arange(len(token_ids), device=token_ids.device)
        self._forward(token_ids, rows, rows)
        self._recording = None
        self.cache_shapes = tuple(shape for _, shape in sorted(recording.shapes.items()))
        return recording

    def _forward(self, token_ids: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
        keep = {"logits_to_keep": rows if len(rows) else rows.new_zeros(1)} if self._keeps_rows else {}
        output = self.module(input_ids=token_ids[None], position_ids=positions[None], use_cache=False, **keep)
        logits: Tensor = output.logits[0]
        return logits[: len(rows)] if self._keeps_rows else logits[rows]

    def _attend(
        self, layer: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
    ) -> tuple[Tensor, None]:
        """transformers' attention function: [1, heads, T, D] -> [1, T, heads, D]."""
        if self._recording is not None:
            _record(self._recording, layer, query, key, value, attention_mask, settings)
            return torch.zeros_like(query).transpose(1, 2).contiguous(), None
        assert self._step is not None, "attention outside a step"
        cache, batch = self._step.caches[layer.layer_idx], self._step.batch
        queries, keys, values = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        self._device.write_kv(keys, values, cache, batch)
        spec = _spec(query, settings)
        mixed = self._device.attention(queries.contiguous(), keys, values, cache, batch, spec)
        return mixed.view(1, *queries.shape), None


def _spec(query: Tensor, settings: dict[str, Any]) -> AttentionSpec:
    scaling = settings.get("scaling")
    return AttentionSpec(
        scale=float(query.shape[-1] ** -0.5 if scaling is None else scaling),
        window=settings.get("sliding_window"),
        softcap=settings.get("softcap"),
        sinks=settings.get("s_aux"),
    )


def _record(
    recording: _Recording,
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    settings: dict[str, Any],
) -> None:
    number = getattr(layer, "layer_idx", None)
    if number is None or number in recording.shapes:
        recording.refusal = "its layers cannot be told apart"
    elif key.shape != value.shape or query.shape[2] != key.shape[2]:
        recording.refusal = "its keys and values differ in shape"
    elif attention_mask is not None or settings.get("position_bias") is not None:
        recording.refusal = "its attention needs a bias or mask of its own"
    else:
        recording.shapes[number] = CacheShape(kv_heads=key.shape[1], head_dim=key.shape[3])
        recording.num_heads[number] = query.shape[1]
        recording.specs[number] = _spec(query, settings)


def load_generic(
    facts: ModelFacts,
    options: EngineOptions,
    device: Device,
    *,
    dtype: torch.dtype,
    adapters: AdapterBank,
    progress: Callable[[float], None],
) -> TransformersModel:
    """Raises ``EngineError`` when the model cannot be run over the paged cache."""
    refuse = _refusal(facts)
    unknown = set(getattr(facts.config, "layer_types", None) or ()) - _LAYER_TYPES
    if unknown:
        raise refuse(f"it has layers of type {', '.join(sorted(unknown))}")
    module = _load_module(facts, options, dtype).to(device.torch_device)
    progress(_WEIGHTS_SHARE)
    adapters.adapt_modules(module)
    model = TransformersModel(module, device, f"mindserve_paged_{id(module)}", dtype, adapters.active)
    token_ids = torch.arange(_CHECK_TOKENS, device=device.torch_device) * 37 % facts.config.vocab_size
    reference = model.reference_logits(token_ids)
    recording = model.record(token_ids)
    if sorted(recording.shapes) != list(range(facts.config.num_hidden_layers)):
        raise refuse(recording.refusal or "not all of its layers are attention that can be replaced")
    if recording.refusal is not None:
        raise refuse(recording.refusal)
    if sum(spec.window is not None for spec in recording.specs.values()) < _num_sliding_layers(facts):
        raise refuse("its sliding windows are not told to attention")
    _self_test(recording, device, dtype)
    error = _difference(_paged_logits(model, device, token_ids), reference[_CHECK_CHUNK - 1 :])
    if not error < _TOLERANCE[dtype]:
        raise refuse(f"over the paged cache its results are off by {error:.1%}")
    progress(1.0)
    return model


def _self_test(recording: _Recording, device: Device, dtype: torch.dtype) -> None:
    """Each kind of attention once."""
    kinds: dict[tuple[object, ...], int] = {}
    for number, spec in recording.specs.items():
        kind = (recording.shapes[number], recording.num_heads[number], spec.scale, spec.window, spec.softcap)
        kinds.setdefault((*kind, spec.sinks is not None), number)
    for number in kinds.values():
        shape = recording.shapes[number]
        heads = AttentionShape(recording.num_heads[number], shape.kv_heads, shape.head_dim)
        device.self_test(heads, dtype, recording.specs[number])


def _refusal(facts: ModelFacts) -> Callable[[str], EngineError]:
    def refuse(reason: str) -> EngineError:
        return EngineError(f"{facts.path}: architecture '{facts.config.model_type}' is not supported: {reason}")

    return refuse


def _num_sliding_layers(facts: ModelFacts) -> int:
    return list(getattr(facts.config, "layer_types", None) or ()).count("sliding_attention")


def _load_module(facts: ModelFacts, options: EngineOptions, dtype: torch.dtype) -> Any:
    transformers_logging.disable_progress_bar()
    folder = facts.path.parent if facts.is_gguf else facts.path
    extra: dict[str, Any] = {"gguf_file": facts.path.name} if facts.is_gguf else {"use_safetensors": True}
    with torch.inference_mode(mode=False):
        module, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=options.trust_remote_code,
            output_loading_info=True,
            **extra,
        )
    lost = sorted(report["missing_keys"]) + sorted(str(entry) for entry in report["mismatched_keys"])
    if lost:
        raise EngineError(f"{facts.path}: {len(lost)} weights are missing or of another shape, the first is {lost[0]}")
    return module.eval().requires_grad_(requires_grad=False)


def _paged_logits(model: TransformersModel, device: Device, token_ids: Tensor) -> Tensor:
    """The rows from the end of the first chunk on: a chunk, then token by token."""
    caches: list[LayerCache] = []
    for shape in model.cache_shapes:
        caches += device.kv_cache(
            num_layers=1,
            num_blocks=1,
            block_size=device.block_size,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=model.cache_dtype,
        )
    bounds = [0, *range(_CHECK_CHUNK, _CHECK_TOKENS + 1)]
    rows = []
    for start, stop in itertools.pairwise(bounds):
        batch = device.upload(
            StepBatch(
                token_ids=token_ids[start:stop].tolist(),
                positions=list(range(start, stop)),
                slots=list(range(start, stop)),
                query_ends=[stop - start],
                kv_lengths=[stop],
                block_tables=[[0]],
            )
        )
        batch.last_rows = torch.tensor([stop - start - 1], device=token_ids.device)
        rows.append(model.logits(batch, caches))
    return torch.cat(rows)


def _difference(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected.float()).norm() / expected.float().norm())

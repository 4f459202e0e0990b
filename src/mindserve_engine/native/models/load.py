"""From a model's files to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.lora.adapter import read_adapter
from mindserve_engine.native.lora.linear import AdapterBank
from mindserve_engine.native.models.base import Model
from mindserve_engine.native.models.chatglm import MODEL_TYPE
from mindserve_engine.native.models.decoder import Decoder, is_lean
from mindserve_engine.native.models.facts import ModelFacts
from mindserve_engine.native.weights.chatglm_source import ChatGlmSource, split_pairs
from mindserve_engine.native.weights.gguf_source import GgufSource, keeps_four_bits
from mindserve_engine.native.weights.renamed_source import RenamedSource, plain_name
from mindserve_engine.native.weights.safetensors_source import SafetensorsSource
from mindserve_engine.native.weights.source import DTYPES, WeightSource
from mindserve_engine.options import EngineOptions

Progress = Callable[[float], None]
_MEDIA_DEVICES: Final = ("cpu",)
"""Where what reads media runs."""
_MODULE_DEVICES: Final = ("cpu", "cuda")
"""Where transformers' own modules run."""
_CARDS: Final = ("cuda", "npu")


def load_model(
    facts: ModelFacts, options: EngineOptions, device: Device, *, max_positions: int, progress: Progress
) -> Model:
    """The lean decoder where it knows the family, else transformers' own model over our cache.

    Raises ``EngineError`` with one line."""
    if options.dtype not in ("auto", "int4", *DTYPES):
        raise EngineError(f"dtype: '{options.dtype}' is none of auto, int4, {', '.join(DTYPES)}")
    if options.dtype == "int4" and not facts.is_gguf:
        raise EngineError(f"{facts.path}: dtype int4 needs a GGUF file quantised to 4 bits")
    if options.dtype == "int4" and not is_lean(facts.config):
        raise EngineError(f"{facts.path}: dtype int4 is not available for architecture '{facts.config.model_type}'")
    if facts.media is not None and not is_lean(facts.config):
        raise EngineError(f"{facts.path}: the language model of this {facts.model_type} model is not supported")
    if options.deterministic and not is_lean(facts.config):
        raise EngineError(f"{facts.path}: deterministic is not available for architecture '{facts.config.model_type}'")
    hosts = _MEDIA_DEVICES if facts.media is not None else _MODULE_DEVICES
    if device.name not in hosts and (facts.media is not None or not is_lean(facts.config)):
        raise EngineError(
            f"{facts.path}: the {facts.model_type} model runs on {' and '.join(hosts)} alone, not on {device.name}"
        )
    held = _held_type(facts, options, device)
    # transformers' models know one type only: whoever named it gets it, to the byte of memory
    quantised = facts.gguf is not None and keeps_four_bits(facts.gguf, options.dtype) and is_lean(facts.config)
    own_type = options.dtype in DTYPES and not is_lean(facts.config)
    dtype = held if own_type else device.compute_dtype(held, quantised=quantised)
    read = [read_adapter(name, path) for name, path in options.adapters.items()]
    if facts.media is not None:
        read = [replace(one, pairs={plain_name(layer): pair for layer, pair in one.pairs.items()}) for one in read]
    if facts.model_type == MODEL_TYPE:
        read = [replace(one, pairs=split_pairs(one.pairs, facts.config)) for one in read]
    adapters = AdapterBank(read, dtype=dtype, device=device)
    model = _build(
        facts,
        options,
        device,
        held=held,
        dtype=dtype,
        max_positions=max_positions,
        adapters=adapters,
        progress=progress,
    )
    adapters.check_all_taken()
    return model


def _held_type(facts: ModelFacts, options: EngineOptions, device: Device) -> torch.dtype:
    """That of ``dtype``. For auto it is bfloat16, whose range holds the numbers of all models; cards, which compute in
    the type that they hold, take float16 where the model's config says so, as it has three more bits."""
    if options.dtype == "auto" and device.name in _CARDS and facts.gguf is None:
        said = str(getattr(facts.config, "dtype", None)).removeprefix("torch.")
        return torch.float16 if said == "float16" else torch.bfloat16
    return DTYPES.get(options.dtype, torch.bfloat16)


def _build(
    facts: ModelFacts,
    options: EngineOptions,
    device: Device,
    *,
    held: torch.dtype,
    dtype: torch.dtype,
    max_positions: int,
    adapters: AdapterBank,
    progress: Progress,
) -> Model:
    try:
        if not is_lean(facts.config):
            # Here: transformers' model classes take two seconds to import, and the lean decoder needs none of them.
            from mindserve_engine.native.models.generic import load_generic

            return load_generic(facts, options, device, dtype=dtype, adapters=adapters, progress=progress)
        source = _open_source(facts, options.dtype, held)
        decoder = Decoder(
            facts.config,
            source,
            device,
            dtype=dtype,
            cache_dtype=held,
            max_positions=max_positions,
            adapters=adapters,
            progress=progress,
        )
        if facts.media is not None:
            # Here: what text alone does not need takes seconds to import.
            from mindserve_engine.native.multimodal.families import load_encoder

            decoder.encoder = load_encoder(facts.media, options, source, hidden=facts.config.hidden_size, dtype=dtype)
        return decoder
    except EngineError:
        raise
    except Exception as error:  # a broken file can make any library below raise anything
        raise EngineError(f"{facts.path}: the model cannot be loaded ({first_line(error)})") from error


def _open_source(facts: ModelFacts, dtype_name: str, held: torch.dtype) -> WeightSource:
    if facts.gguf is None:
        source = SafetensorsSource(facts.path, held)
        if facts.model_type == MODEL_TYPE:
            return ChatGlmSource(source, facts.config)
        return source if facts.media is None else RenamedSource(source)
    heads = facts.config.num_attention_heads
    return GgufSource(
        facts.path,
        facts.gguf,
        dtype=dtype_name,
        heads=heads,
        kv_heads=getattr(facts.config, "num_key_value_heads", None) or heads,
    )

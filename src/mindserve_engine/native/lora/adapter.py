"""Adapters as they stand on disk, in PEFT's format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError

_PREFIX: Final = "base_model.model."
_FACTORS: Final = (".lora_A.weight", ".lora_B.weight")
_UNSUPPORTED: Final = {
    "use_dora": "DoRA",
    "lora_bias": "biases of its own (lora_bias)",
    "modules_to_save": "whole modules of its own (modules_to_save)",
    "trainable_token_indices": "token embeddings of its own",
    "target_parameters": "parameters that are no linear layers",
    "layer_replication": "replicated layers",
    "use_qalora": "QA-LoRA",
    "use_bdlora": "BD-LoRA",
    "alora_invocation_tokens": "activated LoRA",
    "arrow_config": "Arrow routing",
}
"""Settings of PEFT's config that change the arithmetic, and what they are called."""


@dataclass(frozen=True, slots=True)
class LoraPair:
    """What one linear layer gains: ``x @ down.T @ up.T``."""

    down: Tensor
    """[rank, in] float32."""
    up: Tensor
    """[out, rank] float32, the scale included."""


@dataclass(frozen=True, slots=True)
class Adapter:
    name: str
    path: Path
    pairs: dict[str, LoraPair]
    """By the layer's full name in the model, without ``.weight``."""


def read_adapter(name: str, path: Path) -> Adapter:
    """Raises ``EngineError`` with one line that names the adapter."""
    # Here: it takes seconds to import, and few servers have adapters.
    from peft import LoraConfig, PeftConfig
    from peft.utils.save_and_load import load_peft_weights

    if not (path / "adapter_config.json").is_file():
        raise adapter_fault(name, path, "there is no adapter_config.json")
    if not (path / "adapter_model.safetensors").is_file():
        raise adapter_fault(name, path, "there is no adapter_model.safetensors")
    try:
        config = PeftConfig.from_pretrained(str(path), local_files_only=True)
        weights = load_peft_weights(str(path), device="cpu", local_files_only=True)
    except Exception as error:  # a broken file can make the libraries below raise anything
        raise adapter_fault(name, path, f"it cannot be read ({first_line(error)})") from error
    if not isinstance(config, LoraConfig):
        raise adapter_fault(name, path, f"it is of type {config.peft_type}, not LORA")
    used = [feature for setting, feature in _UNSUPPORTED.items() if getattr(config, setting, None)]
    if config.bias != "none":
        used.append(f"biases (bias={config.bias})")
    if used:
        raise adapter_fault(name, path, f"it uses {', '.join(used)}, which this engine does not apply")
    return Adapter(name, path, _pairs(name, path, config, weights))


def _pairs(name: str, path: Path, config: Any, weights: dict[str, Tensor]) -> dict[str, LoraPair]:
    strange = [key for key in weights if not key.endswith(_FACTORS)]
    if strange:
        raise adapter_fault(name, path, f"its tensor {strange[0]} belongs to no linear layer")
    layers = sorted({key.removesuffix(_FACTORS[0]).removesuffix(_FACTORS[1]) for key in weights})
    pairs = {}
    for layer in layers:
        module = layer.removeprefix(_PREFIX)
        try:
            pairs[module] = _pair(config, module, *(weights.get(layer + factor) for factor in _FACTORS))
        except _Unfit as error:
            raise adapter_fault(name, path, f"{layer} {error}") from error
        except Exception as error:  # PEFT takes any value for any setting
            raise adapter_fault(name, path, f"its config does not fit {layer} ({first_line(error)})") from error
    if not pairs:
        raise adapter_fault(name, path, "it holds no weights")
    return pairs


class _Unfit(Exception):
    """What is wrong with a layer's factors."""


def _pair(config: Any, module: str, down: Tensor | None, up: Tensor | None) -> LoraPair:
    if down is None or up is None or down.dim() != 2 or up.dim() != 2 or down.shape[0] != up.shape[1]:
        raise _Unfit("has factors that are missing or do not fit each other")
    if not (down.is_floating_point() and up.is_floating_point()):
        raise _Unfit(f"has factors of the types {down.dtype} and {up.dtype}, which are no floats")
    rank, scale = _rank_and_scale(config, module)
    if down.shape[0] != rank:
        raise _Unfit(f"has the rank {down.shape[0]}, the config says {rank}")
    pair = LoraPair(down.to(torch.float32), up.to(torch.float32) * scale)
    if not (pair.down.isfinite().all() and pair.up.isfinite().all()):
        raise _Unfit("holds NaN or infinity")
    return pair


def _rank_and_scale(config: Any, module: str) -> tuple[int, float]:
    from peft.utils.other import get_pattern_key

    def told(pattern: dict[str, Any], otherwise: Any) -> Any:
        return pattern.get(get_pattern_key(list(pattern), module), otherwise)

    rank, alpha = told(config.rank_pattern, config.r), told(config.alpha_pattern, config.lora_alpha)
    return rank, float(alpha / math.sqrt(rank) if config.use_rslora else alpha / rank)


def adapter_fault(name: str, path: Path, reason: str) -> EngineError:
    """The one line that names the adapter."""
    return EngineError(f"LoRA adapter '{name}' ({path}): {reason}")

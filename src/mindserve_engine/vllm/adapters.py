"""LoRA adapters: what their configs say before vLLM loads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mindserve_engine.interface import EngineError
from mindserve_engine.model_folder import read_object

RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""Those that vLLM makes room for."""
_IGNORED: Final = (
    "rank_pattern",
    "alpha_pattern",
    "layer_replication",
    "use_dora",
    "modules_to_save",
    "target_parameters",
)
"""Settings of PEFT's that vLLM would pass over, or refuse in words that do not name the adapter."""


def largest_rank(adapters: Mapping[str, Path]) -> int:
    """The least of ``RANKS`` that all adapters fit, 0 without adapters. Raises ``EngineError`` naming the adapter that
    cannot be applied exactly."""
    ranks = [_rank(name, folder) for name, folder in adapters.items()]
    return room_for_rank(max(ranks, default=0))


def room_for_rank(rank: int) -> int:
    """The least of ``RANKS`` that ``rank``, at most the last of them, fits; 0 for 0."""
    return next(room for room in RANKS if room >= rank) if rank else 0


def _rank(name: str, folder: Path) -> int:
    if not (folder / "adapter_config.json").is_file():
        raise _fault(name, folder, "there is no adapter_config.json")
    if not (folder / "adapter_model.safetensors").is_file():
        raise _fault(name, folder, "there is no adapter_model.safetensors")
    config = read_object(folder / "adapter_config.json")
    used = [setting for setting in _IGNORED if config.get(setting)]
    if config.get("bias", "none") != "none":
        used.append("bias")
    if used:
        raise _fault(name, folder, f"it uses {', '.join(used)}, which vLLM does not apply")
    rank: Any = config.get("r")
    if type(rank) is not int or not 1 <= rank <= RANKS[-1]:
        raise _fault(name, folder, f"its rank is {rank!r}, must lie in 1..{RANKS[-1]}")
    return rank


def _fault(name: str, folder: Path, reason: str) -> EngineError:
    return EngineError(f"adapter {name} ({folder}): {reason}")

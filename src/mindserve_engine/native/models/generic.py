"""Other architectures than the lean decoder's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.models.base import Model
from mindserve_engine.native.models.facts import ModelFacts
from mindserve_engine.options import EngineOptions


def load_generic(
    facts: ModelFacts, options: EngineOptions, device: Device, *, dtype: torch.dtype, progress: Callable[[float], None]
) -> Model:
    raise EngineError(f"{facts.path}: architecture '{facts.config.model_type}' is not supported")

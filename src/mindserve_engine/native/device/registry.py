"""Devices by name. A device's module is imported only when it is asked for: none needs the packages of another."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Device
from mindserve_engine.options import EngineOptions

_PACKAGE: Final = "mindserve_engine.native.device."
_FACTORIES: Final = {"cpu": _PACKAGE + "cpu_create", "cuda": _PACKAGE + "cuda", "npu": _PACKAGE + "npu"}


def create_device(options: EngineOptions) -> Device:
    """The device that ``options.device`` names; each module offers ``create(options)``.

    Raises ``EngineError`` with one line when there is none or it cannot be used."""
    if options.device not in _FACTORIES:
        raise EngineError(f"device: '{options.device}' is none of {', '.join(_FACTORIES)}")
    hide_packages_of_others(options)
    device: Device = import_module(_FACTORIES[options.device]).create(options)
    return device


def hide_packages_of_others(options: EngineOptions) -> None:
    """transformers imports torch_npu wherever it finds it, and dies where that finds no CANN: not in a process that
    has no use for it. Before a model's config is read, which may import a model's own code."""
    if options.device != "npu":
        sys.modules.setdefault("torch_npu", None)  # type: ignore[arg-type]  # which is how Python spells "not there"

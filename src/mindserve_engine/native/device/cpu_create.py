"""The faster of the two CPU devices that this machine can have."""

from __future__ import annotations

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_build import load_library
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice
from mindserve_engine.options import EngineOptions


def create(options: EngineOptions) -> Device:
    """Raises ``EngineError`` when the options ask for what needs a compiler and there is none."""
    library = load_library()
    if library is not None:
        return CompiledCpuDevice(
            library,
            num_threads=options.num_threads,
            block_size=options.block_size,
            deterministic=options.deterministic,
        )
    if options.deterministic:
        raise EngineError("deterministic: needs a C++ compiler, whose kernels sum in a fixed order; torch's do not")
    return CpuDevice(num_threads=options.num_threads, block_size=options.block_size)

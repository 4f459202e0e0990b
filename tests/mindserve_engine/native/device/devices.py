"""The CPU devices that must all compute the same."""

from __future__ import annotations

from functools import cache

from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_build import load_library
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice

DEVICES = ["torch", "compiled"]
_library = cache(load_library)


def make_device(kind: str, *, block_size: int = 16) -> CpuDevice:
    if kind == "torch":
        return CpuDevice(num_threads=None, block_size=block_size)
    library = _library()
    assert library is not None, "the tests need a C++ compiler"
    return CompiledCpuDevice(library, num_threads=None, block_size=block_size)

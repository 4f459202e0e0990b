"""Loading torch_npu: only here, only when the npu is asked for, one clear line for each thing that can be missing."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from typing import Any, Final

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError

_RUNTIME_LIBRARY: Final = "libascendcl.so"
"""Of CANN; torch_npu cannot be imported without it."""
_DEFAULTS: Final = {
    # blocks of the allocator grow in place: fewer gaps between weights, activations and cache
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    # operators are handed over by a thread of their own; level 2 is faster still, but peaks at more memory
    "TASK_QUEUE_ENABLE": "1",
}
"""Read by torch_npu when it is imported. Whoever sets them has decided."""


def load_torch_npu() -> Any:
    """The package, with at least one device visible. Raises ``EngineError``."""
    if "torch_npu" not in sys.modules:
        _check_installed()
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
    try:
        import torch_npu
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(f"device: npu: torch_npu cannot be imported ({first_line(error)})") from error
    if torch_npu.npu.device_count() < 1:
        raise EngineError(
            "device: npu: no NPU is visible to this process; see what npu-smi info and the variable "
            "ASCEND_RT_VISIBLE_DEVICES say"
        )
    return torch_npu


def _check_installed() -> None:
    if find_spec("torch_npu") is None:
        raise EngineError("device: npu: the package torch_npu is not installed: pip install 'mindserve[cpu,npu]'")
    try:
        ctypes.CDLL(_RUNTIME_LIBRARY)
    except OSError as error:
        raise EngineError(
            f"device: npu: CANN is not on the library path ({error}): source its set_env.sh, "
            "usually /usr/local/Ascend/ascend-toolkit/set_env.sh"
        ) from error

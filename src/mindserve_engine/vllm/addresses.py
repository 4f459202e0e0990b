"""The serving machine's address, as the others and vLLM need it."""

from __future__ import annotations

import socket
import time
from typing import Final

from mindserve_engine.interface import EngineError

WAIT_S: Final = 300.0
"""For a name that is not known yet: a pod's is, once the pod runs."""
_AGAIN_S: Final = 1.0


def numeric(address: str, *, wait_s: float = WAIT_S) -> str:
    """Of a name its address: one part of vLLM listens there, which takes no names. Blocking. Raises ``EngineError``."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            if time.monotonic() + _AGAIN_S > deadline:
                raise EngineError(f"the serving machine {address} has no address: {error.strerror or error}") from error
        time.sleep(_AGAIN_S)

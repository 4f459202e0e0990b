"""The errors of vLLM's engine, whichever release raises them."""

from __future__ import annotations

from typing import Final

from vllm import exceptions
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from mindserve_engine.first_line import first_line

__all__ = ["ENGINE_DIED", "REFUSALS", "EngineDeadError", "reason"]

REFUSALS: Final = (ValueError, getattr(exceptions, "VLLMClientError", ValueError))
"""Of requests: a ValueError up to vLLM 0.23, a class of its own since 0.27."""
ENGINE_DIED: Final = "the engine process died"


def reason(error: BaseException) -> str:
    """What a client may be told."""
    if isinstance(error, EngineDeadError):
        return ENGINE_DIED
    if isinstance(error, EngineGenerateError) and error.__cause__ is not None:
        error = error.__cause__
    return f"vLLM could not go on ({first_line(error)})"

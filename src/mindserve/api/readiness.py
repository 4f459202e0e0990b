"""What the server's state is, in the words of the health endpoints."""

from __future__ import annotations

from typing import Final, Literal

from mindserve.api._generated.models import HealthStatus
from mindserve.api.lifecycle import Lifecycle
from mindserve.errors import RefusalKind, RequestRefused
from mindserve_engine.interface import Engine
from mindserve_engine.types import EngineState

RETRY_AFTER_LOADING_S: Final = 5

_STATUS: Final[dict[EngineState, Literal["ready", "loading", "restarting", "failed"]]] = {
    EngineState.LOADING: "loading",
    EngineState.READY: "ready",
    EngineState.RESTARTING: "restarting",
    EngineState.FAILED: "failed",
    EngineState.CLOSED: "failed",
}

_DEFAULT_REASONS: Final = {
    "ready": "",
    "loading": "the model is being loaded",
    "restarting": "the engine is being restarted",
    "failed": "the engine has ended",
}


def health_status(engine: Engine, lifecycle: Lifecycle) -> HealthStatus:
    """The verdict of this moment. Never blocks."""
    if lifecycle.is_draining:
        return HealthStatus(status="draining", reason="the server is shutting down")
    health = engine.health()
    status = _STATUS[health.state]
    return HealthStatus(status=status, reason=health.reason or _DEFAULT_REASONS[status])


def require_ready(engine: Engine, lifecycle: Lifecycle) -> None:
    """Raise ``RequestRefused`` (UNAVAILABLE) unless requests can be admitted."""
    health = health_status(engine, lifecycle)
    if health.status != "ready":
        raise RequestRefused(
            f"the server takes no requests now ({health.status}): {health.reason}",
            kind=RefusalKind.UNAVAILABLE,
            retry_after_s=RETRY_AFTER_LOADING_S,
        )

"""``GET /health``, ``/v2/health/live`` and ``/v2/health/ready``: always a small body that says why."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State

from mindserve.api._generated.models import HealthStatus
from mindserve.api.readiness import health_status
from mindserve.api.server import server_of


@get("/health")
async def get_health(request: Request[Any, Any, State]) -> Response[HealthStatus]:
    """The same verdict as readiness, under the name that older probes use."""
    return _readiness(request)


@get("/v2/health/ready")
async def get_readiness(request: Request[Any, Any, State]) -> Response[HealthStatus]:
    """200 when new requests are admitted."""
    return _readiness(request)


@get("/v2/health/live")
async def get_liveness(request: Request[Any, Any, State]) -> Response[HealthStatus]:
    """503 only for what will not come back, so that a supervisor restarts that and nothing else."""
    server = server_of(request)
    status = health_status(server.engine, server.lifecycle)
    return Response(status, status_code=503 if status.status == "failed" else 200)


def _readiness(request: Request[Any, Any, State]) -> Response[HealthStatus]:
    server = server_of(request)
    status = health_status(server.engine, server.lifecycle)
    return Response(status, status_code=200 if status.status == "ready" else 503)

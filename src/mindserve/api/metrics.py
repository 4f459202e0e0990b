"""``GET /metrics``, and the figures that are asked of the engine for it."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State

from mindserve.api.server import server_of
from mindserve.observe.metrics import CONTENT_TYPE, EngineFigures
from mindserve_engine.types import EngineStats


@get("/metrics")
async def get_metrics(request: Request[Any, Any, State]) -> Response[bytes]:
    """The text exposition format."""
    return Response(server_of(request).metrics.render(), headers={"content-type": CONTENT_TYPE})


def engine_figures(stats: EngineStats) -> EngineFigures:
    """The engine's figures under MindIE's names."""
    used_blocks = stats.num_blocks - stats.num_free_blocks
    queried = stats.prefix_query_tokens_total
    return EngineFigures(
        gauges={
            "num_requests_running": stats.num_running,
            "num_requests_waiting": stats.num_waiting,
            "num_requests_swapped": stats.num_swapped,
            "npu_cache_usage_perc": used_blocks / stats.num_blocks if stats.num_blocks else 0.0,
            "cpu_cache_usage_perc": 0.0,
            "npu_prefix_cache_hit_rate": stats.prefix_hit_tokens_total / queried if queried else 0.0,
            "all_radix_match_num": queried,
            "npu_radix_match_hit_num": stats.prefix_hit_tokens_total,
        },
        counters={
            "num_preemptions": stats.num_preemptions_total,
            "engine_restarts": stats.num_restarts_total,
        },
    )

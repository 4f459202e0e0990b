from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext

import pytest

from mindserve.api.inflight import ClientGone, InFlight
from mindserve.api.observed import observed
from mindserve.errors import EngineFault, RequestRefused
from mindserve.observe.metrics import EngineFigures, Metrics
from mindserve.observe.request import Outcome


def metrics() -> Metrics:
    return Metrics(model_names=("m",), engine_figures=lambda: EngineFigures(gauges={}, counters={}))


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (None, "success", None),
        (ClientGone(), "aborted", None),
        (asyncio.CancelledError(), "aborted", None),
        (RequestRefused("user said SECRET", field="stop"), "failed", "validation stop"),
        (EngineFault("the device is gone"), "failed", "the device is gone"),
        (KeyError("SECRET"), "failed", "KeyError"),
    ],
)
async def test_every_end_is_counted_once_and_logged_without_content(
    caplog: pytest.LogCaptureFixture, error: BaseException | None, outcome: str, reason: str | None
) -> None:
    own = metrics()
    raised = pytest.raises(type(error)) if error is not None else nullcontext()
    with caplog.at_level(logging.INFO), raised, observed(own, InFlight("u-1")):
        if error is not None:
            raise error
    [record] = caplog.records
    values = record.mindserve_fields  # type: ignore[attr-defined]
    assert (values["request"], values["outcome"], values.get("reason")) == ("u-1", outcome, reason)
    assert "SECRET" not in str(values)
    counted = {
        name: own.registry.get_sample_value(f"request_{name}_total", {"model_name": "m"})
        for name in ("received", "success", "failed", "aborted")
    }
    assert counted == {**dict.fromkeys(counted, 0.0), "received": 1.0, outcome: 1.0}


async def test_what_a_stream_said_of_its_end_stays() -> None:
    own = metrics()
    with observed(own, InFlight("u")) as observation:
        observation.end(Outcome.FAILED, "told inside the stream")
    assert observation.outcome is Outcome.FAILED
    assert observation.reason == "told inside the stream"

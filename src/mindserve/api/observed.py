"""The end of a chat request, however it comes: counted once, and one line in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mindserve.api.inflight import ClientGone, InFlight
from mindserve.errors import RequestRefused
from mindserve.observe.logs import fields
from mindserve.observe.metrics import Metrics
from mindserve.observe.request import Outcome, RequestObservation

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def observed(metrics: Metrics, request: InFlight) -> Iterator[RequestObservation]:
    """An outcome that was set inside (a stream knows its own end) stays."""
    observation = RequestObservation(metrics)
    field: str | None = None
    try:
        yield observation
    except (ClientGone, asyncio.CancelledError):
        observation.end(Outcome.ABORTED)
        raise
    except BaseException as error:
        field = error.field if isinstance(error, RequestRefused) else None
        observation.end(Outcome.FAILED)
        raise
    else:
        observation.end(Outcome.SUCCESS)
    finally:
        _log_end(observation, request, field)


def _log_end(observation: RequestObservation, request: InFlight, field: str | None) -> None:
    values: dict[str, object] = {
        "request": request.request_uuid,
        "outcome": observation.outcome,
        "elapsed_s": observation.elapsed_s,
        "prompt_tokens": observation.num_prompt_tokens,
        "generated_tokens": observation.num_generated_tokens,
    }
    if field is not None:
        values["field"] = field
    if request.cause is not None:
        values["cause"] = type(request.cause).__name__
    _LOG.info("chat request ended", extra=fields(**values))

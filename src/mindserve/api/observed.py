"""The end of a chat request, however it comes: counted once, and one line in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mindserve.api.inflight import ClientGone, InFlight
from mindserve.errors import EngineFault, RequestRefused
from mindserve.observe.logs import fields
from mindserve.observe.metrics import Metrics
from mindserve.observe.request import Outcome, RequestObservation

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def observed(metrics: Metrics, request: InFlight) -> Iterator[RequestObservation]:
    """An outcome that was set inside (a stream knows its own end) stays."""
    observation = RequestObservation(metrics)
    try:
        yield observation
    except (ClientGone, asyncio.CancelledError):
        observation.end(Outcome.ABORTED)
        raise
    except BaseException as error:
        observation.end(Outcome.FAILED, loggable_reason(error))
        raise
    else:
        observation.end(Outcome.SUCCESS)
    finally:
        _log_end(observation, request)


def loggable_reason(error: BaseException) -> str:
    """What a log line may say: of a refusal only kind and field, since its text shows what the client sent."""
    if isinstance(error, RequestRefused):
        return f"{error.kind.value} {error.field}" if error.field else error.kind.value
    return str(error) if isinstance(error, EngineFault) else type(error).__name__


def _log_end(observation: RequestObservation, request: InFlight) -> None:
    reason = {} if observation.reason is None else {"reason": observation.reason}
    _LOG.info(
        "chat request ended",
        extra=fields(
            request=request.request_uuid,
            outcome=observation.outcome,
            elapsed_s=observation.elapsed_s,
            prompt_tokens=observation.num_prompt_tokens,
            generated_tokens=observation.num_generated_tokens,
            **reason,
        ),
    )

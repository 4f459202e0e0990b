"""One admitted request: the engine's events, under the watch of everything that can end it early."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from mindserve.api.assemble import Answer
from mindserve.api.deadlines import Deadlines
from mindserve.api.dialect import Dialect, StreamForm
from mindserve.api.engine_errors import engine_errors
from mindserve.api.inflight import ClientGone, InFlight
from mindserve.api.observed import loggable_reason
from mindserve.api.sse import DONE, frame
from mindserve.errors import EngineFault, MindserveError
from mindserve.observe.logs import fields
from mindserve.observe.request import Outcome, RequestObservation
from mindserve_engine.interface import Generation
from mindserve_engine.types import SequenceEvent

_LOG: Final = logging.getLogger(__name__)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted request with what watches and counts it."""

    generation: Generation
    request: InFlight
    deadlines: Deadlines
    observation: RequestObservation
    answer: Answer
    dialect: Dialect
    form: StreamForm

    def _take(self, event: SequenceEvent) -> None:
        """Count an event of the engine. Raises the cause when the request is given up, and ``EngineFault`` when the
        engine cannot finish it."""
        self.deadlines.received()
        self.request.raise_if_given_up()
        if event.failure is not None:
            raise EngineFault(f"the engine could not finish the request: {event.failure}")
        self.observation.tokens(
            index=event.index, num_tokens=len(event.token_ids), num_prompt_tokens=event.num_prompt_tokens
        )

    def _shown(self, event: SequenceEvent) -> bytes:
        """The frames of what an event makes, often one, none while its text is held back."""
        chunks = self.answer.chunks(event, full_text=self.form.has_full_text)
        return b"".join([frame(self.form.chunk(chunk)) for chunk in chunks])

    def _is_last(self, event: SequenceEvent) -> bool:
        """Whether the answer is complete with this event. What the engine need not go on with is stopped: a stop string
        ends a text of which the engine knows nothing."""
        if self.answer.is_complete:
            self.generation.abort()
            return True
        if event.finish_reason is None and self.answer.has_ended(event.index):
            self.generation.stop(event.index)
        self.deadlines.waiting()
        return False

    def _incomplete(self) -> MindserveError:
        """Why the engine's events ended before the answer."""
        return self.request.cause or EngineFault("the engine ended the request without a finish reason")

    async def complete(self) -> msgspec.Struct:
        """The body of the whole answer."""
        with engine_errors():
            self.deadlines.waiting()
            async for event in self.generation:
                self._take(event)
                self.answer.feed(event)
                if self._is_last(event):
                    return self.dialect.completion(self.answer.completion())
        raise self._incomplete()

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The stream, its last frame being ``[DONE]`` or the event of what went wrong.

        One item per engine event that has something to show; what an event makes goes out in one write.
        """
        yield b"".join([frame(self.form.opening(chunk)) for chunk in self.answer.opening()])
        try:
            with engine_errors():
                self.deadlines.waiting()
                async for event in self.generation:
                    self._take(event)
                    if data := self._shown(event):
                        yield data
                    if self._is_last(event):
                        break
                else:
                    raise self._incomplete()
        except ClientGone:
            self.observation.end(Outcome.ABORTED)
            return
        except Exception as error:
            # The headers said 200: whatever went wrong, foreseen or not, the client must learn of it here.
            self.observation.end(Outcome.FAILED, loggable_reason(error))
            if not isinstance(error, MindserveError):
                _LOG.exception("a stream broke off", extra=fields(request=self.request.request_uuid))
            yield frame(self.dialect.stream_error(error))
            return
        if self.form.has_usage_chunk:
            yield frame(self.form.chunk(self.answer.usage_chunk()))
        yield DONE
        self.observation.end(Outcome.SUCCESS)

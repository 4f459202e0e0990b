"""One scripted request: the replay of its plan."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mindserve_engine.interface import GenerationFailed
from mindserve_engine.scripted.plan import Plan, SequencePlan
from mindserve_engine.scripted.script import figure_at
from mindserve_engine.types import SequenceEvent


class ScriptedGeneration:
    """Replays a plan as fast as it is consumed, or at the script's pace. Implements ``interface.Generation``."""

    def __init__(
        self, plan: Plan, *, on_end: Callable[[ScriptedGeneration], None], on_crash: Callable[[], None]
    ) -> None:
        self.request_id = plan.request.request_id
        self.seated = False
        """Whether it has a place in the batch."""
        self.num_cached_tokens = plan.reply.cached_tokens
        self._plan = plan
        self._on_end = on_end
        self._on_crash = on_crash
        self._open = dict(enumerate(plan.sequences))
        """Sequences that go on, by index."""
        self._events: deque[SequenceEvent] = deque()
        """Of the last step, not yet consumed."""
        self._num_steps = 0
        self._ended = False
        self._failure: str | None = None
        self._due: float | None = None
        self._wake: asyncio.Future[None] | None = None

    def __aiter__(self) -> ScriptedGeneration:
        return self

    async def __anext__(self) -> SequenceEvent:
        while not self._events and not self._ended:
            await self._until_due()
            if not self._ended:
                self._step()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise GenerationFailed(failure)
        if not self._events:
            raise StopAsyncIteration
        return self._events.popleft()

    def stop(self, index: int) -> None:
        self._open.pop(index, None)
        self._events = deque(event for event in self._events if event.index != index)
        if not self._open:
            self._end()

    def abort(self) -> None:
        self._events.clear()
        self._end()

    def sit_down(self) -> None:
        """The request gets its place in the batch."""
        self.seated = True
        self._wake_up()

    def fail(self, reason: str) -> None:
        """End with ``GenerationFailed``."""
        if not self._ended:
            self._failure = reason
            self._end()

    async def _until_due(self) -> None:
        """Wait for a place in the batch, for the next token's time, or for the end."""
        while not self.seated and not self._ended:
            await self._sleep(None)
        reply, position = self._plan.reply, self._num_steps
        if position == reply.crash_after:
            self._on_crash()
        elif position == reply.fail_after:
            self.fail("the script says so")
        while position == reply.hang_after and not self._ended:
            await self._sleep(None)
        if reply.delay_ms == 0.0:
            await asyncio.sleep(0)  # one step: without it one stream would keep the event loop for itself
            return
        now = asyncio.get_running_loop().time()
        self._due = (now if self._due is None else self._due) + figure_at(reply.delay_ms, position) / 1000
        while not self._ended and self._due > asyncio.get_running_loop().time():
            await self._sleep(self._due)

    async def _sleep(self, due: float | None) -> None:
        """Until woken up, or until the loop's time is ``due``."""
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        timer = None if due is None else loop.call_at(due, self._wake_up)
        try:
            await self._wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _step(self) -> None:
        """One token for every open sequence; beams are told of when all have ended, each in one event."""
        position = self._num_steps
        self._num_steps = position + 1
        if position == self._plan.reply.fail_sequence_after and 0 in self._open:
            failure, plan = "the script says so", self._plan
            request_id, num_prompt = plan.request.request_id, plan.num_prompt_tokens
            self._events.append(SequenceEvent(request_id, 0, [], [], None, num_prompt, self.num_cached_tokens, failure))
            del self._open[0]
        if self._plan.request.beam_width:
            if self._num_steps == max(sequence.num_tokens for sequence in self._plan.sequences):
                self._events += [
                    self._event(index, sequence, 0, sequence.num_tokens) for index, sequence in self._open.items()
                ]
                self._open.clear()
        else:
            self._step_each(position)
        if not self._open:
            self._end()

    def _step_each(self, position: int) -> None:
        for index, sequence in list(self._open.items()):
            self._events.append(self._event(index, sequence, position, position + 1))
            if position + 1 == sequence.num_tokens:
                del self._open[index]

    def _event(self, index: int, sequence: SequencePlan, start: int, end: int) -> SequenceEvent:
        """Tokens ``start:end`` of a sequence."""
        request = self._plan.request
        num_top, is_end = request.num_logprobs, end == sequence.num_tokens
        return SequenceEvent(
            request.request_id,
            index,
            [sequence.token_at(position) for position in range(start, end)],
            [sequence.timing_at(position) for position in range(start, end)],
            sequence.finish_reason if is_end else None,
            self._plan.num_prompt_tokens,
            self.num_cached_tokens,
            logprobs=[] if num_top is None else [sequence.logprobs_at(p, num_top) for p in range(start, end)],
            beam_score=sequence.score if request.beam_width else None,
        )

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._open.clear()
            self._wake_up()
            self._on_end(self)

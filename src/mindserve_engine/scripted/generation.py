"""One scripted request: what it will generate, decided when it is admitted, and its replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mindserve_engine.interface import GenerationFailed
from mindserve_engine.scripted.script import Finish, Reply, figure_at
from mindserve_engine.scripted.vocabulary import Vocabulary
from mindserve_engine.types import FinishReason, GenerationRequest, SequenceEvent, TokenTiming


@dataclass(slots=True, frozen=True)
class Plan:
    """Everything that will be generated for one request."""

    request_id: str
    reply: Reply
    token_ids: list[int]
    """The reply's tokens; longer plans start over."""
    num_tokens: int
    finish_reason: FinishReason
    num_prompt_tokens: int


def make_plan(request: GenerationRequest, reply: Reply, vocabulary: Vocabulary, max_context: int) -> Plan:
    """Apply the request's limits and stop tokens to the reply."""
    token_ids = [vocabulary.id_of(piece) for piece in reply.pieces]
    limit = min(request.max_tokens, max_context - len(request.prompt_token_ids))
    endless = reply.repeat or (reply.finish is Finish.EOS and request.ignore_eos)
    if reply.finish is Finish.EOS and not endless:
        token_ids.append(vocabulary.turn_end_id)
    num_tokens, finish_reason = limit, FinishReason.LENGTH
    if not endless and len(token_ids) <= limit:
        num_tokens = len(token_ids)
        finish_reason = FinishReason.STOP_TOKEN if reply.finish is Finish.STOP else FinishReason(reply.finish)
    stop_token_ids = frozenset(request.stop_token_ids)
    for position, token_id in enumerate(token_ids[:num_tokens]):
        if token_id in stop_token_ids and token_id != vocabulary.turn_end_id:
            num_tokens, finish_reason = position + 1, FinishReason.STOP_TOKEN
            break
    num_prompt_tokens = len(request.prompt_token_ids) if reply.prompt_tokens is None else reply.prompt_tokens
    return Plan(request.request_id, reply, token_ids, num_tokens, finish_reason, num_prompt_tokens)


class ScriptedGeneration:
    """Replays a plan as fast as it is consumed, or at the script's pace. Implements ``interface.Generation``."""

    def __init__(
        self, plan: Plan, *, on_end: Callable[[ScriptedGeneration], None], on_crash: Callable[[], None]
    ) -> None:
        self.request_id = plan.request_id
        self.seated = False
        """Whether it has a place in the batch."""
        self.num_cached_tokens = plan.reply.cached_tokens
        self._plan = plan
        self._timings = _timings(plan.reply)
        self._on_end = on_end
        self._on_crash = on_crash
        self._num_generated = 0
        self._ended = False
        self._failure: str | None = None
        self._due: float | None = None
        self._wake: asyncio.Future[None] | None = None

    def __aiter__(self) -> ScriptedGeneration:
        return self

    async def __anext__(self) -> SequenceEvent:
        if not self._ended:
            await self._until_due()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise GenerationFailed(failure)
        if self._ended:
            raise StopAsyncIteration
        return self._next_event()

    def abort(self) -> None:
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
        reply, position = self._plan.reply, self._num_generated
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

    def _next_event(self) -> SequenceEvent:
        plan, position = self._plan, self._num_generated
        num_prompt, num_cached = plan.num_prompt_tokens, self.num_cached_tokens
        if position == plan.reply.fail_sequence_after:
            self._end()
            failure = "the script says so"
            return SequenceEvent(plan.request_id, 0, [], [], None, num_prompt, num_cached, failure)
        self._num_generated = position + 1
        finish_reason = None
        if self._num_generated == plan.num_tokens:
            finish_reason = plan.finish_reason
            self._end()
        token_id = plan.token_ids[position % len(plan.token_ids)]
        timing = self._timings[min(position, len(self._timings) - 1)]
        return SequenceEvent(plan.request_id, 0, [token_id], [timing], finish_reason, num_prompt, num_cached)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._wake_up()
            self._on_end(self)


def _timings(reply: Reply) -> list[TokenTiming]:
    """The figures of each token; the last entry holds for all later ones."""
    figures = (reply.queue_wait_us, reply.batch_size, reply.step_ms)
    length = max(len(values) if isinstance(values, list) else 1 for values in figures)
    return [
        TokenTiming(
            figure_at(reply.queue_wait_us, position),
            figure_at(reply.batch_size, position),
            figure_at(reply.step_ms, position),
        )
        for position in range(length)
    ]

"""A bounded pool of workers that render and tokenise prompts beside the event loop.

Threads, not processes: tokenising, the long part, leaves the interpreter lock, and a vocabulary is tens of megabytes.
What holds the lock for long, such as rendering thousands of messages, has one worker of its own: more would do no more
work in a second, but would keep the event loop and all short prompts waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from mindserve.chat.tokenizer import DEFAULT_TIMEOUT_S, ChatTokenizer, prompt_timeout
from mindserve.errors import RefusalKind, RequestRefused
from mindserve_engine.types import MediaModel

T = TypeVar("T")

SHORT_PIECES: Final = 1024
"""Conversations of more messages, calls and parts are long: they hold the interpreter lock for tens of milliseconds."""

MAX_LONG_WAITING: Final = 64
"""A long job may hold a whole body of maxRequestLength."""


class _Lane:
    """Workers with a queue of their own. ``jobs`` run or wait; one more than ``limit`` is refused."""

    def __init__(self, num_workers: int, max_waiting: int) -> None:
        self.executor = ThreadPoolExecutor(num_workers, thread_name_prefix="prompt")
        self.limit = num_workers + max_waiting
        self.jobs: set[Future[Any]] = set()
        self._num_workers = num_workers

    def overloaded(self, reason: str) -> RequestRefused:
        retry_after_s = math.ceil(1 + len(self.jobs) / (10 * self._num_workers))
        return RequestRefused(reason, kind=RefusalKind.OVERLOADED, retry_after_s=retry_after_s)


class PromptPool:
    """Turns chat messages into prompts. One event loop owns it.

    A caller that is cancelled while its job waits takes the job with it; a job that runs is let run to its end and
    holds its worker until then.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        num_workers: int = 2,
        max_waiting: int = 256,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """``num_workers``: for short jobs. ``max_waiting``: jobs that may wait for a worker; one more is refused.
        ``timeout_s``: for waiting and work together."""
        self._tokenizer = tokenizer
        self._short = _Lane(num_workers, max_waiting)
        self._long = _Lane(1, min(max_waiting, MAX_LONG_WAITING))
        self._timeout_s = timeout_s

    @property
    def num_jobs(self) -> int:
        """Jobs that run or wait."""
        return len(self._short.jobs) + len(self._long.jobs)

    async def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        media: MediaModel | None = None,
        check_length: Callable[[int], None] | None = None,
        is_long: bool = False,
    ) -> list[int]:
        """``ChatTokenizer.render_chat`` in a worker. Raises what it raises; ``OVERLOADED`` when too many jobs wait or
        no worker came free in time. A conversation of many pieces is long without being called so."""
        deadline = time.monotonic() + self._timeout_s

        def job() -> list[int]:
            return self._tokenizer.render_chat(
                messages,
                tools=tools,
                template_kwargs=template_kwargs,
                media=media,
                check_length=check_length,
                timeout_s=deadline - time.monotonic(),
            )

        return await self.run(job, is_long=is_long or _num_pieces(messages) > SHORT_PIECES)

    async def run(self, function: Callable[[], T], *, is_long: bool = False) -> T:
        """Any other computation on a request, under the same bounds. Raises ``UNAVAILABLE`` past the time."""
        lane = self._long if is_long else self._short
        if len(lane.jobs) >= lane.limit:
            raise lane.overloaded("too many prompts are waiting to be tokenised")
        future = lane.executor.submit(function)
        lane.jobs.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _call_soon(loop, lane.jobs.discard, done))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(future)  # cancelling it takes a waiting job out of the queue
        except TimeoutError as error:
            if future.cancelled():
                raise lane.overloaded("no worker was free to tokenise the prompt") from error
            raise prompt_timeout() from error

    def close(self) -> None:
        """Drop what waits. Jobs that run end by themselves."""
        for lane in (self._short, self._long):
            lane.executor.shutdown(wait=False, cancel_futures=True)


def _num_pieces(messages: list[dict[str, Any]]) -> int:
    """Messages, tool calls in them, and parts of their contents."""
    lists = (message.get(field) for message in messages for field in ("tool_calls", "content"))
    return len(messages) + sum(len(pieces) for pieces in lists if isinstance(pieces, list))


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], argument: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, argument)

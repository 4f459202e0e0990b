"""A bounded pool of workers that render and tokenise prompts beside the event loop.

Threads, not processes: tokenising, the long part, leaves the interpreter lock, and a vocabulary is tens of megabytes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from mindserve.chat.tokenizer import DEFAULT_TIMEOUT_S, ChatTokenizer
from mindserve.errors import RefusalKind, RequestRefused

T = TypeVar("T")


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
        """``max_waiting``: jobs that may wait for a worker; one more is refused. ``timeout_s``: for waiting and work
        together."""
        self._tokenizer = tokenizer
        self._executor = ThreadPoolExecutor(num_workers, thread_name_prefix="prompt")
        self._limit = num_workers + max_waiting
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._jobs: set[Future[Any]] = set()

    @property
    def num_jobs(self) -> int:
        """Jobs that run or wait."""
        return len(self._jobs)

    async def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        check_length: Callable[[int], None] | None = None,
    ) -> list[int]:
        """``ChatTokenizer.render_chat`` in a worker. Raises what it raises; ``OVERLOADED`` when too many jobs wait or
        no worker came free in time."""
        deadline = time.monotonic() + self._timeout_s

        def job() -> list[int]:
            return self._tokenizer.render_chat(
                messages,
                tools=tools,
                template_kwargs=template_kwargs,
                check_length=check_length,
                timeout_s=deadline - time.monotonic(),
            )

        return await self.run(job)

    async def run(self, function: Callable[[], T]) -> T:
        """Any other long computation on a request, under the same bounds."""
        if len(self._jobs) >= self._limit:
            raise self._overloaded("too many prompts are waiting to be tokenised")
        future = self._executor.submit(function)
        self._jobs.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _call_soon(loop, self._jobs.discard, done))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(future)  # cancelling it takes a waiting job out of the queue
        except TimeoutError as error:
            if future.cancelled():
                raise self._overloaded("no worker was free to tokenise the prompt") from error
            raise RequestRefused(
                f"messages: making the prompt took longer than {self._timeout_s:g} s", field="messages"
            ) from error

    def close(self) -> None:
        """Drop what waits. Jobs that run end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _overloaded(self, reason: str) -> RequestRefused:
        retry_after_s = math.ceil(1 + len(self._jobs) / (10 * self._num_workers))
        return RequestRefused(reason, kind=RefusalKind.OVERLOADED, retry_after_s=retry_after_s)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], argument: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, argument)

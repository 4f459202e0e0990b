"""Keeps an engine over vLLM alive: notices that it, or a part of it, is lost, ends what is left, and starts another."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from mindserve_engine.interface import Engine, EngineUnavailable, Generation
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineHealth, EngineInfo, EngineState, EngineStats, GenerationRequest, Vocabulary

TICK_S: Final = 0.5
MAX_FAILED_STARTS: Final = 3
"""In a row; then the engine is given up."""
FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 60.0
STABLE_S: Final = 60.0
"""When an engine is lost that served for so long, the back-off begins anew."""
END_S: Final = 12.0
"""For the end of a lost engine; what then still runs is killed by the close's sweep."""
ENDED: Final = "the engine ended"
"""All that clients are told; the log says how and why."""

log = logging.getLogger(__name__)


class Perishable(Engine, Protocol):
    """An engine that can be lost, and is then closed and replaced by another."""

    def silent_ranks(self) -> tuple[int, ...]:
        """Parts of it that have work and are not heard of."""

    def fail_all(self, reason: str) -> None:
        """End what runs, without asking the engine. Never blocks."""


class Guarding(Protocol):
    """Sees to it that no process of the engines outlives the server."""

    def close(self) -> None:
        """Ends those that are left. Blocking. Idempotent."""


class KeptEngine:
    """Implements ``interface.Engine`` over one ``Perishable`` after another."""

    def __init__(
        self,
        options: EngineOptions,
        make: Callable[[EngineOptions], Perishable],
        guard: Callable[[], Guarding],
        *,
        tick_s: float = TICK_S,
    ) -> None:
        """``guard`` is called before the first engine starts; what it gives outlives them all."""
        self._options = options
        self._make = make
        self._tick_s = tick_s
        self._engine = make(options)
        self._info: EngineInfo | None = None
        self._vocabulary: Vocabulary | None = None
        self._lost: EngineHealth | None = None
        """Set while there is no engine that serves."""
        self._past = EngineStats()
        """Counters of the engines that were lost."""
        self._num_losses = 0
        """In a row, without a stable time between them."""
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self._guard = guard
        self._guardian: Guarding | None = None

    async def start(self) -> None:
        self._guardian = self._guard()
        await self._engine.start()
        self._info = self._engine.info
        self._keeping = asyncio.create_task(self._keep())

    @property
    def info(self) -> EngineInfo:
        return self._engine.info if self._info is None else self._info

    def learn(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._engine.learn(vocabulary)

    async def check_grammar(self, grammar: str) -> None:
        self._check_ready()
        await self._engine.check_grammar(grammar)

    async def admit(self, request: GenerationRequest) -> Generation:
        self._check_ready()
        return await self._engine.admit(request)

    def _check_ready(self) -> None:
        health = self.health()
        if health.state is not EngineState.READY:
            raise EngineUnavailable(health.reason or f"the engine is {health.state}")

    def health(self) -> EngineHealth:
        if self._is_closed:
            return EngineHealth(state=EngineState.CLOSED)
        if self._lost is not None:
            return self._lost
        health = self._engine.health()
        if self._keeping is not None and health.state is EngineState.FAILED:  # it will be noticed with the next tick
            return EngineHealth(state=EngineState.RESTARTING, reason=ENDED)
        return health

    def stats(self) -> EngineStats:
        return _sum(self._past, self._engine.stats())

    async def close(self) -> None:
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._engine.close()
        if self._guardian is not None:
            await asyncio.to_thread(self._guardian.close)

    async def _keep(self) -> None:
        while True:
            began = time.monotonic()
            reason = await self._loss()
            was_stable = time.monotonic() - began > STABLE_S
            self._num_losses = 1 if was_stable else self._num_losses + 1
            log.error("the vllm engine is lost: %s", reason)
            await self._end()
            if not self._options.vllm.restart:
                self._lost = EngineHealth(state=EngineState.FAILED, reason=ENDED)
                return
            if not await self._start_another():
                return

    async def _loss(self) -> str:
        """Returns when the engine is lost, with the reason."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._tick_s)
            health = self._engine.health()
            if health.state is EngineState.FAILED:
                return health.reason or "it died"
            if time.monotonic() - before > 2 * self._tick_s:
                continue  # it was this side that was busy: what the engine sent meanwhile lies in the socket
            ranks = self._engine.silent_ranks()
            if ranks:
                which = f" of rank {', '.join(map(str, ranks))}" if self._options.vllm.data_parallel > 1 else ""
                return f"no step{which} for {self._options.vllm.stall_timeout_s:g} s"

    async def _end(self) -> None:
        """What runs fails at once; then the engine's processes end."""
        self._lost = EngineHealth(state=EngineState.RESTARTING, reason=f"{ENDED}; another one is started")
        self._past = msgspec.structs.replace(
            self.stats(), num_running=0, num_waiting=0, num_free_blocks=0, num_blocks=0
        )
        self._engine.fail_all(ENDED)
        await self._let_go()

    async def _let_go(self) -> bool:
        """Close the engine, and wait no longer than for one that ends by itself. Whether it did."""
        ending = asyncio.create_task(self._engine.close())
        done, _ = await asyncio.wait((ending,), timeout=END_S)
        for one in done:
            if error := one.exception():  # it is lost anyway
                log.error("the vllm engine ends with an error: %s", error)
        return bool(done)

    async def _start_another(self) -> bool:
        for attempt in range(MAX_FAILED_STARTS):
            await asyncio.sleep(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._num_losses - 1 + attempt)))
            self._engine = self._make(self._options)
            try:
                await self._engine.start()
            except Exception as error:  # not only our own: of what vLLM raises nothing may end the attempts in silence
                log.error("the vllm engine does not start again: %s", error)
                if await self._let_go():
                    continue
                break  # what hangs in its start would mix with another one's
            if self._vocabulary is not None:
                self._engine.learn(self._vocabulary)
            self._past = msgspec.structs.replace(self._past, num_restarts_total=self._past.num_restarts_total + 1)
            self._lost = None
            log.warning("the vllm engine serves again")
            return True
        self._lost = EngineHealth(state=EngineState.FAILED, reason=f"{ENDED} and cannot be started again")
        return False


def _sum(past: EngineStats, present: EngineStats) -> EngineStats:
    """Counters go on, the rest is of the moment."""
    counters = {
        name: getattr(past, name) + getattr(present, name)
        for name in EngineStats.__struct_fields__
        if name.endswith("_total")
    }
    return msgspec.structs.replace(present, **counters)

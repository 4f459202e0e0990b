"""The engine over vLLM behind ``interface.Engine``."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from mindserve_engine.admission import check_request
from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.grammar import GrammarCompiler, check_grammar
from mindserve_engine.interface import (
    Engine,
    EngineError,
    EngineNotStarted,
    EngineUnavailable,
    QueueFull,
    RequestInvalid,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import (
    EngineHealth,
    EngineInfo,
    EngineState,
    EngineStats,
    GenerationRequest,
    Vocabulary,
)
from mindserve_engine.vllm.guardian import Guardian
from mindserve_engine.vllm.kept import KeptEngine
from mindserve_engine.vllm.launch import Launched, launch
from mindserve_engine.vllm.processes import Processes

if TYPE_CHECKING:
    from mindserve_engine.vllm.served import Served

T = TypeVar("T")
_CLOSED: Final = "the engine was closed"
_LOOK_EVERY_S: Final = 0.2


def create(options: EngineOptions) -> Engine:
    """An engine that runs the model at ``options.model_path`` on vLLM. Raises ``ImportError`` where that is not
    installed."""
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
    return KeptEngine(options, VllmEngine, Guardian)


class VllmEngine:
    """Implements ``interface.Engine``. vLLM's own processes do the computing; its client side lives in this one."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._health = EngineHealth(state=EngineState.LOADING, reason=f"vLLM is loading {options.model_path.name}")
        self._launching: Future[Launched] | None = None
        self._processes: Processes | None = None
        self._served: Served | None = None
        self._info: EngineInfo | None = None
        self._grammars: GrammarCompiler | None = None
        self._closing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """vLLM blocks while it loads, so that happens in a thread. Raises ``EngineNotStarted`` when it dies or takes
        too long; ``close`` then ends what is left."""
        if self._launching is not None:
            raise EngineError("an engine starts once")
        self._processes = Processes()
        self._launching = in_daemon_thread(lambda: launch(self._options), name="launch-vllm")
        try:
            await self._in_time(self._launching)
        except EngineError as error:
            if self._health.state is not EngineState.CLOSED:
                self._health = EngineHealth(state=EngineState.FAILED, reason=str(error))
            raise
        if self._health.state is EngineState.CLOSED:
            raise EngineUnavailable("the engine was closed while it started")
        self._health = EngineHealth(state=EngineState.READY)

    async def _in_time(self, launching: Future[Launched]) -> None:
        limit_s = self._options.vllm.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._begin(await asyncio.wrap_future(launching))
        except TimeoutError as error:
            raise EngineNotStarted(f"vLLM did not start within {limit_s:g} s (startTimeout)") from error

    async def _begin(self, launched: Launched) -> None:
        from mindserve_engine.vllm.served import Served  # here: it imports vllm

        assert self._processes is not None
        served = self._served = Served(launched, self._processes, self._options)
        self._info = launched.info
        preparing = asyncio.create_task(served.prepare(self._options.adapters))
        try:
            while not preparing.done():
                if served.is_dead:  # what vLLM was asked for it need not answer then
                    raise EngineNotStarted("vLLM's engine died while it started")
                await asyncio.wait((preparing,), timeout=_LOOK_EVERY_S)
            await preparing
        finally:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None, "the engine has not started"
        return self._info

    def learn(self, vocabulary: Vocabulary) -> None:
        self._grammars = GrammarCompiler(vocabulary)

    async def check_grammar(self, grammar: str) -> None:
        """vLLM compiles it again where it is followed."""
        await check_grammar(self._grammars, grammar)

    async def admit(self, request: GenerationRequest) -> QueuedGeneration:
        self._ready()
        check_request(request, self.info)
        if request.grammar is not None:
            await self.check_grammar(request.grammar)
        served = self._ready()
        served.check_media(request)
        if request.request_id in served.running:
            raise RequestInvalid(field="request_id", reason=f"{request.request_id} is in use")
        limit = self._options.max_waiting
        if not served.has_place and served.num_waiting >= limit:
            raise QueueFull(num_waiting=served.num_waiting, limit=limit)
        return served.submit(request)

    def _ready(self) -> Served:
        health = self.health()
        if health.state is not EngineState.READY or self._served is None:
            raise EngineUnavailable(health.reason or f"the engine is {health.state}")
        return self._served

    def health(self) -> EngineHealth:
        if self._health.state is EngineState.READY and self._served is not None and self._served.is_dead:
            return EngineHealth(state=EngineState.FAILED, reason="vLLM's engine died")
        return self._health

    def silent_ranks(self) -> tuple[int, ...]:
        return () if self._served is None else self._served.ranks.silent()

    def fail_all(self, reason: str) -> None:
        if self._served is not None:
            self._served.fail_all(reason)

    def stats(self) -> EngineStats:
        return EngineStats() if self._served is None else self._served.stats()

    async def close(self) -> None:
        """What is in flight fails; vLLM's processes have ended when this returns."""
        self._health = EngineHealth(state=EngineState.CLOSED)
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._served is not None:
            await self._served.close(_CLOSED)
        elif self._launching is not None and self._processes is not None:
            await _close_launching(self._launching, self._processes)


async def _close_launching(launching: Future[Launched], processes: Processes) -> None:
    """Without its processes vLLM gives the launch up."""
    while not launching.done():
        await asyncio.to_thread(processes.end)
        await asyncio.wait([_watched(launching)], timeout=1.0)
    with contextlib.suppress(Exception):  # it failed
        await asyncio.to_thread(launching.result().llm.shutdown, 0)
    await asyncio.to_thread(processes.end)


def in_daemon_thread(function: Callable[[], T], *, name: str) -> Future[T]:
    """``function()``, run in a thread that the end of the interpreter does not wait for."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def _watched(launching: Future[Launched]) -> asyncio.Future[Launched]:
    """To be waited for by someone who does not ask how it ended."""
    waiting = asyncio.wrap_future(launching)
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    return waiting

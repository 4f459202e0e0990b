"""Keeps one engine instance alive: starts its process, watches it, and replaces it when it dies or hangs."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import zmq

from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.native.child import Child, describe_exit
from mindserve_engine.native.ledger import Ledger
from mindserve_engine.native.wire import (
    OTHER_VERSION_STATUS,
    Abort,
    Add,
    Alive,
    Close,
    Dying,
    FromCore,
    Learn,
    Loading,
    Ready,
    Step,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineHealth, EngineInfo, EngineState, EngineStats, GenerationRequest, Vocabulary

MAX_FAILED_STARTS: Final = 3
"""In a row; then the instance is given up."""
FIRST_BACKOFF_S: Final = 0.25
MAX_BACKOFF_S: Final = 30.0
STABLE_S: Final = 60.0
"""When a process dies that was ready for so long, the back-off begins anew."""
CLOSE_GRACE_S: Final = 5.0
"""For the step that runs; then the process is killed."""
START_S: Final = 30.0
"""An interpreter may take so long to start on a busy machine before its silence begins to count."""
ENDED: Final = "the engine process ended"
"""All that clients are told; the log says how and why."""
OTHER_VERSION: Final = "the engine was replaced by another version while the server ran: restart the server"

log = logging.getLogger(__name__)


class Supervisor:
    """One engine instance over the lives of its processes. Belongs to the event loop it is made in."""

    def __init__(self, options: EngineOptions, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.health = EngineHealth(state=EngineState.LOADING, reason="starting the engine process")
        self.ledger = Ledger(max_batch_size=options.max_batch_size)
        self.info: EngineInfo | None = None
        """Of the process that was ready last."""
        self._options = options
        self._context = context
        self._child: Child | None = None
        self._vocabulary: Vocabulary | None = None
        self.settled = asyncio.Event()
        """Set when the first start has succeeded or failed."""
        self._timer: asyncio.TimerHandle | None = None
        """Of the next heartbeat check or the next start."""
        self._heard_at = 0.0
        self._ready_at: float | None = None
        self._num_deaths = 0
        """In a row, without a stable time between them."""
        self._num_failed_starts = 0
        self._last_words: str | None = None
        """What the process said of its end."""
        self._silence: str | None = None
        """Why it was killed."""

    @property
    def is_ready(self) -> bool:
        return self.health.state is EngineState.READY

    @property
    def pid(self) -> int | None:
        """Of the process that lives or lived last."""
        return None if self._child is None else self._child.pid

    def submit(self, request: GenerationRequest) -> QueuedGeneration:
        """Send a checked request to the process, which must be ready."""
        assert self._child is not None
        assert self.info is not None
        generation = self.ledger.open(request, self._abort, self.info.block_size)
        self._child.send(Add(request, time.monotonic()))
        return generation

    def learn(self, vocabulary: Vocabulary) -> None:
        """Told to this process and to those that come after it."""
        self._vocabulary = vocabulary
        if self._child is not None and self.is_ready:
            self._child.send(Learn(vocabulary))

    async def close(self) -> None:
        """End the process; what is in flight fails."""
        grace_s = CLOSE_GRACE_S if self.is_ready else 0.0
        self.health = EngineHealth(state=EngineState.CLOSED)
        self.settled.set()
        self._cancel_timer()
        self.ledger.fail_all("the engine was closed")
        if self._child is not None:
            self._child.send(Close())
            await self._child.end(grace_s)

    def launch(self) -> None:
        """Start a process; ``health`` and ``settled`` tell what becomes of it."""
        self._last_words = self._silence = None
        self._ready_at = None
        self._heard_at = time.monotonic() + START_S
        try:
            self._child = Child(self._options, self._context, on_message=self._receive, on_exit=self._exited)
        except (OSError, zmq.ZMQError) as error:
            self._last_words = f"no engine process can be started: {error}"
            self._ended(self._last_words)
        else:
            self._check_heartbeat()

    def _abort(self, request_id: str, index: int | None) -> None:
        if self._child is not None and request_id in self.ledger:
            self._child.send(Abort(request_id, index))

    def _receive(self, message: FromCore) -> None:
        if self.health.state is EngineState.CLOSED:
            return
        self._heard_at = time.monotonic()
        match message:
            case Step():
                self.ledger.take(message)
            case Loading(what, share):
                self.health = EngineHealth(state=self._unready_state(), reason=what, progress=share)
            case Ready(info, stats):
                self._become_ready(info, stats)
            case Dying(reason):
                self._last_words = reason
            case Alive():
                pass

    def _become_ready(self, info: EngineInfo, stats: EngineStats) -> None:
        if self.info is not None:
            self.ledger.count_restart()
        self.info = info
        self.ledger.update(stats)
        self._ready_at = time.monotonic()
        self._num_failed_starts = 0
        self.health = EngineHealth(state=EngineState.READY)
        if self._vocabulary is not None:
            self.learn(self._vocabulary)
        self.settled.set()

    def _check_heartbeat(self) -> None:
        """Kill the process when it has been silent for too long; its exit then starts another."""
        assert self._child is not None
        self._child.receive()  # when it was this side that was busy, the heartbeats lie in the socket
        timeout_s = self._options.heartbeat_timeout_s
        if time.monotonic() - self._heard_at > timeout_s:
            self._silence = f"the engine process did not answer for {timeout_s:g} s"
            self._child.kill()
        else:
            self._timer = asyncio.get_running_loop().call_later(timeout_s / 4, self._check_heartbeat)

    def _exited(self, status: int) -> None:
        if self.health.state is EngineState.CLOSED:
            return
        self._cancel_timer()
        if status == OTHER_VERSION_STATUS:
            self._last_words = OTHER_VERSION
        self._ended(self._silence or self._last_words or f"{ENDED} with {describe_exit(status)}")

    def _ended(self, cause: str) -> None:
        """The process is gone: decide whether there will be another."""
        log.error("engine process: %s", cause)
        self.ledger.fail_all(ENDED)
        was_ready = self._ready_at is not None
        was_stable = self._ready_at is not None and time.monotonic() - self._ready_at > STABLE_S
        self._num_deaths = 1 if was_stable else self._num_deaths + 1
        self._num_failed_starts += not was_ready
        # what a first start reports in order (no such file, no memory) will not be better next time
        is_hopeless = self.info is None and self._last_words is not None
        if is_hopeless or cause == OTHER_VERSION:
            self._give_up(cause)
        elif self._num_failed_starts >= MAX_FAILED_STARTS:
            # who starts the engine needs the cause; once it has served, clients read the reason
            self._give_up(cause if self.info is None else f"{ENDED} and cannot be started again")
        else:
            self._launch_later()

    def _give_up(self, reason: str) -> None:
        self.health = EngineHealth(state=EngineState.FAILED, reason=reason)
        self.settled.set()

    def _launch_later(self) -> None:
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._num_deaths - 1))
        self.health = EngineHealth(state=self._unready_state(), reason=f"{ENDED}; another one is started")
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.launch)

    def _unready_state(self) -> EngineState:
        return EngineState.LOADING if self.info is None else EngineState.RESTARTING

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""The native engine: one or more engine processes behind ``interface.Engine``."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import zmq

from mindserve_engine.admission import check_request
from mindserve_engine.first_look import look_at
from mindserve_engine.generation import QueuedGeneration, num_media_bytes
from mindserve_engine.grammar import GrammarCompiler, check_grammar
from mindserve_engine.interface import Engine, EngineError, EngineUnavailable, QueueFull, RequestInvalid
from mindserve_engine.media_admission import check_media_room
from mindserve_engine.native.ledger import total
from mindserve_engine.native.supervisor import Supervisor
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineHealth, EngineInfo, EngineState, EngineStats, GenerationRequest, Vocabulary

_NOT_STARTED: Final = EngineHealth(state=EngineState.LOADING, reason="not started")
_PRECEDENCE: Final = (EngineState.LOADING, EngineState.READY, EngineState.RESTARTING, EngineState.FAILED)
"""The state of several instances is the first of these that one of them is in."""


def create(options: EngineOptions) -> Engine:
    """An engine that runs the model at ``options.model_path`` in processes of its own."""
    return NativeEngine(options)


class NativeEngine:
    """Implements ``interface.Engine``. A request goes to the instance with the most free KV blocks."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._instances: list[Supervisor] = []
        self._grammars: GrammarCompiler | None = None
        self._health: EngineHealth | None = None
        """How it ended: failed at the start, or closed."""

    async def start(self) -> None:
        """Start all instances. When one cannot start, ``EngineError`` is raised and the others are ended."""
        if self._context is not None or self._health is not None:
            raise EngineError("an engine starts once")
        await asyncio.to_thread(look_at, self._options.model_path)
        self._context = zmq.Context()
        self._instances = [
            Supervisor(_of_instance(self._options, number), self._context)
            for number in range(self._options.num_instances)
        ]
        for instance in self._instances:
            instance.launch()
        for instance in self._instances:
            await instance.settled.wait()
            if instance.health.state is EngineState.FAILED:
                await self._end(instance.health)
        if self._health is not None:
            raise EngineError(self._health.reason or "the engine was closed while it started")

    @property
    def info(self) -> EngineInfo:
        return next(instance.info for instance in self._instances if instance.info is not None)

    @property
    def pids(self) -> list[int]:
        """The engine processes that live, or lived last."""
        return [instance.pid for instance in self._instances if instance.pid is not None]

    def learn(self, vocabulary: Vocabulary) -> None:
        self._grammars = GrammarCompiler(vocabulary)
        for instance in self._instances:
            instance.learn(vocabulary)

    async def admit(self, request: GenerationRequest) -> QueuedGeneration:
        self._check_ready()
        check_request(request, self.info)
        if request.grammar is not None:
            await self.check_grammar(request.grammar)
            self._check_ready()
        if any(request.request_id in instance.ledger for instance in self._instances):
            raise RequestInvalid(field="request_id", reason=f"{request.request_id} is in use")
        instance = max((instance for instance in self._instances if instance.is_ready), key=_room)
        num_waiting = sum(instance.ledger.num_waiting for instance in self._instances)
        if not instance.ledger.has_place and num_waiting >= self._options.max_waiting:
            raise QueueFull(num_waiting=num_waiting, limit=self._options.max_waiting)
        self._check_media_room(request)
        return instance.submit(request)

    def _check_media_room(self, request: GenerationRequest) -> None:
        wanted = num_media_bytes(request)
        in_flight = sum(instance.ledger.num_media_bytes for instance in self._instances) if wanted else 0
        check_media_room(wanted, in_flight=in_flight, limit=self._options.max_media_mb * 2**20)

    def _check_ready(self) -> None:
        health = self.health()
        if health.state is not EngineState.READY:
            raise EngineUnavailable(health.reason or f"the engine is {health.state}")

    async def check_grammar(self, grammar: str) -> None:
        await check_grammar(self._grammars, grammar)

    def health(self) -> EngineHealth:
        """The whole is as far as its slowest instance while it starts, later as well as its best one. When it is ready,
        the reason tells of instances that are not."""
        if self._health is not None:
            return self._health
        healths = [instance.health for instance in self._instances]
        whole = next((health for state in _PRECEDENCE for health in healths if health.state is state), _NOT_STARTED)
        missing = [health for health in healths if health.state is not EngineState.READY]
        if whole.state is EngineState.READY and missing:
            reason = f"{len(missing)} of {len(healths)} instances not ready: {missing[0].reason}"
            return EngineHealth(state=EngineState.READY, reason=reason)
        return whole

    def stats(self) -> EngineStats:
        return total([instance.ledger.stats() for instance in self._instances])

    async def close(self) -> None:
        """End the processes; what is in flight fails."""
        await self._end(EngineHealth(state=EngineState.CLOSED))

    async def _end(self, health: EngineHealth) -> None:
        self._health = health
        await asyncio.gather(*(instance.close() for instance in self._instances))
        if self._context is not None:
            self._context.term()  # all sockets are closed: returns at once


def _of_instance(options: EngineOptions, number: int) -> EngineOptions:
    """Each instance has a device to itself."""
    return msgspec.structs.replace(options, device_ids=[options.device_ids[number] if options.device_ids else number])


def _room(instance: Supervisor) -> tuple[bool, int, int]:
    """The larger, the better a new request is placed there."""
    ledger = instance.ledger
    return ledger.has_place, ledger.num_free_blocks, -len(ledger)

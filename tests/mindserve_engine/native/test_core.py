"""The loop of the engine process over a channel in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_runner import reference
from loops import Bench, ask

from mindserve_engine.native.block_pool import PoolCorrupted
from mindserve_engine.native.core import serve
from mindserve_engine.native.wire import Abort, Add, Close, FromCore, Step, ToCore


class MemoryChannel:
    """Each turn of the loop receives the next list of messages; when there are none left it is closed."""

    def __init__(self, *turns: list[ToCore]) -> None:
        self.turns = list(turns)
        self.sent: list[Step] = []
        self.timeouts: list[float] = []

    def send(self, message: FromCore) -> None:
        assert isinstance(message, Step)
        self.sent.append(message)

    def receive(self, timeout_s: float) -> Iterator[ToCore]:
        self.timeouts.append(timeout_s)
        yield from self.turns.pop(0) if self.turns else [Close()]

    def output(self) -> list[int]:
        return [token_id for step in self.sent for event in step.events for token_id in event.token_ids]


def test_each_turn_takes_messages_steps_once_and_reports() -> None:
    channel = MemoryChannel([Add(ask("r", [1, 2], 3), 0.0)], [], [], [])
    serve(Bench().loop, channel, heartbeat_s=7.0)
    assert channel.output() == reference([1, 2], 3)
    assert [len(step.events) for step in channel.sent] == [1, 1, 1, 0]
    # it waits for messages only when there is nothing to do
    assert channel.timeouts == [7.0, 0, 0, 7.0, 7.0]


def test_idle_turns_are_heartbeats() -> None:
    channel = MemoryChannel([], [])
    serve(Bench().loop, channel, heartbeat_s=1.0)
    assert [(step.events, step.stats.num_blocks) for step in channel.sent] == [([], 64), ([], 64)]


def test_aborts_are_confirmed_once_and_unknown_ones_are_ignored() -> None:
    channel = MemoryChannel([Add(ask("r", [1], 9), 0.0)], [Abort("r"), Abort("r"), Abort("nobody")])
    serve(Bench().loop, channel, heartbeat_s=1.0)
    assert [step.aborted for step in channel.sent] == [[], ["r"]]
    assert channel.sent[-1].stats.num_free_blocks == 64


def test_books_are_checked_when_the_work_is_done() -> None:
    bench = Bench()
    bench.loop._pool.allocate()
    channel = MemoryChannel([Add(ask("r", [1], 2), 0.0)], [])
    with pytest.raises(PoolCorrupted):
        serve(bench.loop, channel, heartbeat_s=1.0)
    assert len(channel.sent) == 1

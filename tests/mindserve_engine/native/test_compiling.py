"""Grammars are compiled beside the steps, and requests join when theirs is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq
from fake_runner import reference
from llguidance import LLMatcher
from loops import Bench, ask
from waiting import until

from mindserve_engine.grammar import GrammarCompiler
from mindserve_engine.native.core import serve
from mindserve_engine.native.waker import Waker
from mindserve_engine.native.wire import Abort, Add, Close, FromCore, Step, ToCore
from mindserve_engine.types import Vocabulary

VOCABULARY = Vocabulary([bytes([i]) for i in range(256)] + [b"<eos>"], [256], (256,))
BOUND = 'start: "yes"'


class Gate:
    """Compilations wait until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun: list[str] = []


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate()
    compile_now = GrammarCompiler._compile

    def compile_later(self: GrammarCompiler, grammar: str) -> LLMatcher:
        held.begun.append(grammar)
        assert held.opened.wait(60)
        return compile_now(self, grammar)

    monkeypatch.setattr(GrammarCompiler, "_compile", compile_later)
    yield held
    held.opened.set()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.loop.learn(VOCABULARY)
    yield made
    made.loop.close()


async def join(bench: Bench) -> None:
    """Wait until what is being compiled is there, or will never be."""
    await until(lambda: bench.loop._compiling.has_news)


async def test_neighbours_go_on_while_a_grammar_is_compiled(bench: Bench, gate: Gate) -> None:
    bench.add(ask("free", [1, 2, 3], 6))
    bench.add(ask("bound", [4, 5], 3, grammar=BOUND))
    bench.add(ask("later", [6], 4))
    for _ in range(10):
        bench.step()
    assert bench.output("free") == reference([1, 2, 3], 6)
    assert bench.output("later") == reference([6], 4)
    assert bench.events["bound"] == []
    assert bench.loop.must_wait
    assert bench.loop.has_work
    assert (bench.loop.stats().num_running, bench.loop.stats().num_waiting) == (0, 1)
    gate.opened.set()
    await join(bench)
    bench.run()
    assert bench.output("bound") == reference([4, 5], 3)
    rows = [row for batch in bench.runner.batches for row in batch.samples if row.grammar is not None]
    assert [row.prompt_token_ids for row in rows] == [[4, 5]] * 3
    assert rows[0].grammar.consume_tokens(list(b"yes"))


async def test_it_joins_at_its_place_in_the_order(gate: Gate) -> None:
    bench = Bench(max_batch_size=1)
    bench.loop.learn(VOCABULARY)
    bench.add(ask("first", [1], 5))
    bench.add(ask("bound", [2], 2, grammar=BOUND))
    bench.add(ask("last", [3], 2))
    bench.step()
    gate.opened.set()
    await join(bench)
    order = [event.request_id for _ in range(8) for event in bench.step()]
    assert order == ["first"] * 4 + ["bound"] * 2 + ["last"] * 2
    bench.loop.close()


async def test_kept_grammars_need_not_wait_for_others(bench: Bench, gate: Gate) -> None:
    gate.opened.set()
    bench.add(ask("warm", [1], 2, grammar=BOUND))
    await join(bench)
    bench.run()
    gate.opened.clear()
    bench.add(ask("slow", [2], 2, grammar='start: "no"'))
    bench.add(ask("again", [3], 2, grammar=BOUND))
    bench.step()
    bench.step()
    assert bench.output("again") == reference([3], 2)
    assert bench.events["slow"] == []


async def test_an_abort_while_its_grammar_is_compiled(bench: Bench, gate: Gate) -> None:
    """Of the one that is being compiled, and of one behind it that then never is."""
    for name in ("one", "two", "three"):
        bench.add(ask(name, [1, 2], 2, grammar=f'start: "{name}"'))
    await until(lambda: gate.begun != [])
    assert bench.loop.abort("one")
    assert bench.loop.abort("two", 0)
    assert not bench.loop.abort("two")
    bench.loop.check()
    gate.opened.set()
    await join(bench)
    bench.run()
    assert bench.output("three") == reference([1, 2], 2)
    assert bench.events["one"] == bench.events["two"] == []
    assert gate.begun == ['start: "one"', 'start: "three"']
    bench.add(ask("one", [1, 2], 2))  # the name is free again
    bench.run()
    assert bench.output("one") == reference([1, 2], 2)


async def test_a_failure_is_the_requests_own(bench: Bench) -> None:
    bench.add(ask("free", [1], 5))
    bench.add(ask("bound", [2], 5, grammar="start: (", num_sequences=2))
    await join(bench)
    bench.run()
    assert bench.output("free") == reference([1], 5)
    assert "grammar" in bench.failures["bound"]
    assert [event.index for event in bench.events["bound"]] == [0, 1]


class WaitingChannel:
    """A channel whose process is alone: when the loop waits for messages, only a waker ends it."""

    def __init__(self, bench: Bench, gate: Gate, *first: ToCore) -> None:
        self._bench, self._gate, self._first = bench, gate, list(first)
        self._woken = threading.Event()
        self.sent: list[Step] = []

    def wake(self) -> None:
        self._woken.set()

    def send(self, message: FromCore) -> None:
        assert isinstance(message, Step)
        self.sent.append(message)

    def receive(self, timeout_s: float) -> Iterator[ToCore]:
        if self._first:
            yield self._first.pop(0)
        elif not self._bench.loop.has_work:
            yield Close()
        elif timeout_s:
            self._gate.opened.set()
            assert self._woken.wait(60)


def test_the_process_rests_until_a_grammar_is_there(gate: Gate) -> None:
    bench = Bench()
    channel = WaitingChannel(bench, gate, Add(ask("bound", [1], 2, grammar=BOUND), 0.0))
    bench.loop._compiling._wake = channel.wake
    bench.loop.learn(VOCABULARY)
    serve(bench.loop, channel, heartbeat_s=60.0)
    assert [token for step in channel.sent for event in step.events for token in event.token_ids] == reference([1], 2)
    bench.loop.close()


def test_an_abort_is_confirmed_while_nothing_else_is_done(bench: Bench, gate: Gate) -> None:
    channel = WaitingChannel(bench, gate, Add(ask("bound", [1], 2, grammar=BOUND), 0.0), Abort("bound"))
    serve(bench.loop, channel, heartbeat_s=60.0)
    assert [step.aborted for step in channel.sent] == [[], ["bound"]]


def test_a_waker_ends_the_waiting_once() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sender, receiver = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    waker = Waker()
    try:
        sender.bind("inproc://messages")
        receiver.connect("inproc://messages")
        for _ in range(100_000):
            waker.wake()  # never blocks, though nobody reads
        waker.wait(receiver, 60)
        thread = threading.Thread(target=waker.wait, args=(receiver, 60))
        thread.start()
        waker.wake()
        thread.join(30)
        assert not thread.is_alive()
        sender.send(b"message")
        waker.wait(receiver, 60)
        assert receiver.recv() == b"message"
    finally:
        waker.close()
        context.destroy(linger=0)
    waker.wake()  # of a compilation that ends after the loop

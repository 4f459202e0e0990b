"""Engine processes that die, hang or cannot start: who is told what, and what is left behind."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import zmq
from engines import answer, make_engine
from fake_core import DIE, FAIL, HANG, NUM_BLOCKS, SLOW
from fake_runner import reference
from loops import ask, fake_info
from waiting import is_alive, names_in, until

from mindserve_engine.interface import EngineError, EngineUnavailable, GenerationFailed
from mindserve_engine.native import child, supervisor
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.native.wire import Alive, FromCore, Loading, Ready
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineHealth, EngineState, EngineStats

pytestmark = pytest.mark.usefixtures("fast_restarts")


@pytest.fixture
async def engine() -> AsyncIterator[NativeEngine]:
    engine = make_engine()
    await engine.start()
    yield engine
    await engine.close()


async def test_kill_fails_what_runs_and_the_engine_recovers(
    engine: NativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answer(engine, "before", [1, 2, 3, 4, 5]) == reference([1, 2, 3, 4, 5], 4)
    asked_before = engine.stats().prefix_query_tokens_total
    generation = await engine.admit(ask("r", [SLOW], 100))
    await anext(generation)
    (old_pid,) = engine.pids
    os.kill(old_pid, signal.SIGKILL)
    with pytest.raises(GenerationFailed, match=rf"^{supervisor.ENDED}$"):
        async for _ in generation:
            pass
    assert engine.health() == EngineHealth(
        state=EngineState.RESTARTING, reason=f"{supervisor.ENDED}; another one is started"
    )
    assert "signal 9 (SIGKILL)" in caplog.text
    with pytest.raises(EngineUnavailable, match=f"^{supervisor.ENDED}"):
        await engine.admit(ask("r", [1]))
    await until(lambda: engine.health().state is EngineState.READY)
    assert engine.pids != [old_pid]
    assert await answer(engine, "r", [1, 2]) == reference([1, 2], 4)
    stats = engine.stats()
    assert (stats.num_restarts_total, stats.num_free_blocks) == (1, NUM_BLOCKS)
    assert stats.prefix_query_tokens_total == asked_before + 1 + 2


async def test_request_that_kills_the_process_fails_all_but_not_for_good(engine: NativeEngine) -> None:
    bystander = asyncio.ensure_future(answer(engine, "bystander", [SLOW, 2]))
    with pytest.raises(GenerationFailed):
        await answer(engine, "killer", [DIE])
    with pytest.raises(GenerationFailed):
        await bystander
    await until(lambda: engine.health().state is EngineState.READY)
    assert await answer(engine, "again", [3]) == reference([3], 4)


@pytest.mark.parametrize("how", ["hangs in a step", "is stopped"])
async def test_silent_process_is_replaced(how: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(heartbeat_timeout_s=1.0)
    await engine.start()
    (pid,) = engine.pids
    generation = await engine.admit(ask("r", [HANG if how == "hangs in a step" else SLOW], 100))
    if how == "is stopped":
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(GenerationFailed, match=f"^{supervisor.ENDED}$"):
        async for _ in generation:
            pass
    assert "did not answer for 1 s" in caplog.text
    assert not is_alive(pid)
    await until(lambda: engine.health().state is EngineState.READY)
    assert await answer(engine, "again", [3]) == reference([3], 4)
    await engine.close()


async def test_idle_process_is_not_taken_for_hung() -> None:
    engine = make_engine(heartbeat_timeout_s=1.5)
    await engine.start()
    pids = engine.pids
    heard_at = engine._instances[0]._heard_at
    await until(lambda: engine._instances[0]._heard_at > heard_at + 1.8)
    assert (engine.pids, engine.stats().num_restarts_total) == (pids, 0)
    await engine.close()


async def test_process_stopped_while_it_loads_is_replaced() -> None:
    engine = make_engine("never_load", heartbeat_timeout_s=1.0)
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: engine.health().progress == 0.25)
    (pid,) = engine.pids
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: engine.pids != [pid])
    assert not is_alive(pid)
    await until(lambda: engine.health().progress == 0.25)
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await starting


async def test_slow_load_is_not_taken_for_hung() -> None:
    """Nothing is told of its progress, for longer than an engine may be silent."""
    engine = make_engine("never_load", heartbeat_timeout_s=1.5)
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: engine.health().progress == 0.25)
    pids, heard_at = engine.pids, engine._instances[0]._heard_at
    await until(lambda: engine._instances[0]._heard_at > heard_at + 1.8)
    assert (engine.pids, engine.health().progress) == (pids, 0.25)
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await starting


async def test_process_that_never_says_a_word_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "START_S", 0.0)
    engine = make_engine(heartbeat_timeout_s=0.01)  # no interpreter starts as fast as that
    with pytest.raises(EngineError, match=r"did not answer for 0\.01 s"):
        await engine.start()
    assert not any(map(is_alive, engine.pids))
    await engine.close()


async def test_steps_that_keep_failing_replace_the_process(engine: NativeEngine) -> None:
    for number in range(2):
        assert await answer(engine, str(number), [FAIL]) == []
    with pytest.raises(GenerationFailed):
        await answer(engine, "last", [FAIL])
    await until(lambda: engine.stats().num_restarts_total == 1)
    assert await answer(engine, "r", [3]) == reference([3], 4)


@pytest.mark.parametrize(
    ("runner", "reason"),
    [
        ("refuse_to_load", "/models/x: there is no model"),
        ("fail_to_load", "ValueError: first line second line"),
        ("no_such_function", "AttributeError: module 'fake_core' has no attribute 'no_such_function'"),
    ],
)
async def test_start_that_fails_in_order_is_told_in_one_line(runner: str, reason: str) -> None:
    engine = make_engine(runner, Path("/models/x"), num_instances=2)
    with pytest.raises(EngineError) as caught:
        await engine.start()
    assert str(caught.value) == engine.health().reason == reason
    assert engine.health().state is EngineState.FAILED
    assert not any(map(is_alive, engine.pids))
    await engine.close()


async def test_start_that_dies_is_tried_again_a_few_times(tmp_path: Path) -> None:
    engine = make_engine("die_loading", tmp_path)
    with pytest.raises(EngineError, match="SIGKILL"):
        await engine.start()
    assert len(names_in(tmp_path)) == supervisor.MAX_FAILED_STARTS
    assert engine.health().state is EngineState.FAILED
    await engine.close()


async def test_instance_that_cannot_come_back_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine("load_once", tmp_path)
    await engine.start()
    os.kill(engine.pids[0], signal.SIGKILL)
    await until(lambda: engine.health().state is EngineState.FAILED)
    assert "ValueError: the device is still busy" in caplog.text
    with pytest.raises(EngineUnavailable, match=f"^{supervisor.ENDED} and cannot be started again$"):
        await engine.admit(ask("r", [1]))
    assert engine._instances[0]._timer is None
    await engine.close()


async def test_process_of_another_version_is_not_tried_again(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade under a running server: the next process finds other code on the disk."""
    monkeypatch.setattr(child, "protocol", lambda: "another")
    os.kill(engine.pids[0], signal.SIGKILL)
    await until(lambda: engine.health().state is EngineState.FAILED)
    assert engine.health().reason == supervisor.OTHER_VERSION
    assert engine._instances[0]._num_failed_starts == 1
    with pytest.raises(EngineUnavailable, match="restart the server"):
        await engine.admit(ask("r", [1]))


async def test_process_that_talks_nonsense_is_a_failed_start() -> None:
    engine = make_engine("say_nonsense")
    with pytest.raises(EngineError, match=r"sent a message that cannot be read \(Expected `float`"):
        await engine.start()
    await engine.close()


async def test_failed_restarts_are_counted_anew_after_each_success(tmp_path: Path) -> None:
    engine = make_engine("load_every_third_time", tmp_path)
    await engine.start()
    for num_restarts in (1, 2):
        os.kill(engine.pids[0], signal.SIGKILL)
        await until(lambda: engine.stats().num_restarts_total == num_restarts)  # noqa: B023 - awaited in the same turn
    assert len(names_in(tmp_path)) == 7
    await engine.close()


async def test_progress_is_seen_and_loading_can_be_given_up() -> None:
    engine = make_engine("never_load")
    assert engine.health().state is EngineState.LOADING
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: engine.health().progress == 0.25)
    assert (engine.health().state, engine.health().reason) == (EngineState.LOADING, "loading for ever")
    with pytest.raises(EngineUnavailable, match="loading for ever"):
        await engine.admit(ask("r", [1]))
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await starting
    assert not any(map(is_alive, engine.pids))


async def test_backoff_grows_and_starts_anew_after_a_stable_time(
    engine: NativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    instance = engine._instances[0]
    delays: list[float] = []
    monkeypatch.setattr(instance, "launch", lambda: None)
    monkeypatch.setattr(loop, "call_later", lambda delay_s, callback: delays.append(delay_s))
    monkeypatch.setattr(supervisor, "MAX_BACKOFF_S", 0.05)
    for _ in range(4):
        instance._exited(-9)
    instance._ready_at = time.monotonic() - supervisor.STABLE_S - 1
    instance._exited(-9)
    monkeypatch.undo()
    assert delays == [0.01, 0.02, 0.04, 0.05, 0.01]


class QuietChild:
    """A process that says what it has to say only when it is listened to."""

    pid = 0

    def __init__(self, *_: object, on_message: Callable[[FromCore], None], **__: object) -> None:
        self.on_message = on_message
        self.unheard: list[FromCore] = []
        self.num_kills = 0

    def receive(self) -> None:
        while self.unheard:
            self.on_message(self.unheard.pop(0))

    def kill(self) -> None:
        self.num_kills += 1

    def send(self, message: object) -> None:
        pass

    async def end(self, grace_s: float) -> None:
        pass


@pytest.mark.parametrize("words", [Loading("on and on", 0.5), Ready(fake_info(4, 4), EngineStats())])
async def test_words_after_the_close_bring_nothing_back(monkeypatch: pytest.MonkeyPatch, words: FromCore) -> None:
    monkeypatch.setattr(supervisor, "Child", QuietChild)
    with zmq.Context() as context:
        instance = supervisor.Supervisor(EngineOptions(model_path=Path("none")), context)
    instance.launch()
    await instance.close()
    instance._receive(words)
    instance._exited(-signal.SIGKILL)
    assert instance.health == EngineHealth(state=EngineState.CLOSED)
    assert instance._timer is None


async def test_how_long_a_process_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its interpreter starts, and later, when it may be this side that did not listen."""
    monkeypatch.setattr(supervisor, "Child", QuietChild)
    options = EngineOptions(model_path=Path("none"), heartbeat_timeout_s=9.0)
    with zmq.Context() as context:
        instance = supervisor.Supervisor(options, context)
    instance.launch()
    child = instance._child
    for silence_s, words, num_kills in (
        (supervisor.START_S, [], 0),
        (10.0, [Alive()], 0),
        (8.0, [], 0),
        (2.0, [], 1),
    ):
        child.unheard = words
        instance._heard_at -= silence_s  # as if so much time had passed
        instance._cancel_timer()
        instance._check_heartbeat()
        assert child.num_kills == num_kills

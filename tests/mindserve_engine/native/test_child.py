"""One engine process: where its sockets live, what it inherits, what happens when there is no room for it."""

import asyncio
import errno
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from fake_core import NUM_WORDS
from waiting import names_in, until

from mindserve_engine.interface import EngineError
from mindserve_engine.native import child
from mindserve_engine.native.child import Child, describe_exit, environment
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.native.wire import Alive, Dying, Loading
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineState


def options(**fields: object) -> EngineOptions:
    return EngineOptions(model_path=Path("none"), runner="fake_core:load_runner", **fields)


def test_exits_are_told_for_people() -> None:
    assert describe_exit(1) == "exit status 1"
    assert describe_exit(-signal.SIGSEGV) == "signal 11 (SIGSEGV)"
    assert describe_exit(-99) == "signal 99"


def test_threads_are_divided_among_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    assert environment(options())["OMP_NUM_THREADS"] == "8"
    assert environment(options(num_instances=3))["OMP_NUM_THREADS"] == "2"
    assert environment(options(num_instances=3, num_threads=5))["OMP_NUM_THREADS"] == "5"


async def test_temporary_directory_with_a_long_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 120)))
    engine = NativeEngine(options())
    await engine.start()
    await engine.close()


async def test_socket_directory_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    bind = child._bind

    def watch(context: object, kind: int, path: Path, resources: object) -> object:
        modes.append(path.parent.stat().st_mode & 0o777)
        return bind(context, kind, path, resources)

    monkeypatch.setattr(child, "_bind", watch)
    engine = NativeEngine(options())
    await engine.start()
    await engine.close()
    assert modes == [0o700, 0o700]


async def test_machine_without_room_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **fields: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    engine = NativeEngine(options())
    with pytest.raises(EngineError, match=r"no engine process can be started: .*temporarily unavailable"):
        await engine.start()
    assert engine.health().state is EngineState.FAILED
    await engine.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


async def test_last_words_come_before_the_exit(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    heard: list[object] = []
    refusing = EngineOptions(model_path=Path("none"), runner="fake_core:refuse_to_load")
    process = Child(refusing, context, on_message=heard.append, on_exit=heard.append)
    asyncio.get_running_loop().remove_reader(process._results.fileno())  # this side is slow
    await process.exited
    assert heard == [Dying("none: there is no model"), 1]


async def test_pile_of_messages_is_handed_over_in_turns(
    context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    heard: list[object] = []
    talking = EngineOptions(model_path=tmp_path, runner="fake_core:talk_before_loading")
    process = Child(talking, context, on_message=heard.append, on_exit=heard.append)
    loop, descriptor = asyncio.get_running_loop(), process._results.fileno()
    loop.remove_reader(descriptor)  # this side is slow
    await until((tmp_path / "said").exists)
    loop.add_reader(descriptor, process.receive)
    process.receive()
    assert len(heard) <= child._MAX_MESSAGES_PER_TURN
    await until(lambda: sum(isinstance(message, Loading) for message in heard) == NUM_WORDS)
    words = [message.what for message in heard if isinstance(message, Loading)]
    assert words == [str(number) for number in range(NUM_WORDS)]
    await process.end(0.0)


async def test_last_words_are_heard_after_a_pile_of_others(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    heard: list[object] = []
    talking = EngineOptions(model_path=Path("none"), runner="fake_core:talk_and_die")
    process = Child(talking, context, on_message=heard.append, on_exit=heard.append)
    asyncio.get_running_loop().remove_reader(process._results.fileno())  # this side is slow
    await process.exited
    assert len(heard) > NUM_WORDS
    assert heard[-2:] == [Dying("that was all"), 1]


async def test_message_that_cannot_be_read_is_the_end_of_the_process(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    heard: list[object] = []
    garbled = EngineOptions(model_path=Path("none"), runner="fake_core:say_nonsense")
    process = Child(garbled, context, on_message=heard.append, on_exit=heard.append)
    await process.exited
    words = [message for message in heard if not isinstance(message, Alive)]
    assert words[0] == Loading("loading weights", 0.5)
    assert "sent a message that cannot be read (Expected `float`, got `str`" in words[1].reason
    assert words[2:] == [-signal.SIGKILL]


def refuse_the_second(bind: Callable[..., object]) -> Callable[..., object]:
    bound: list[object] = []

    def refuse(*args: object) -> object:
        if bound:
            raise zmq.ZMQError(errno.EMFILE)
        bound.append(bind(*args))
        return bound[0]

    return refuse


async def test_no_room_for_sockets_leaves_nothing_behind(
    context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_MAX_PLACE_LENGTH", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(child, "_bind", refuse_the_second(child._bind))
    with pytest.raises(zmq.ZMQError):
        Child(options(), context, on_message=print, on_exit=print)
    assert names_in(tmp_path) == []  # and the context ends, which it cannot while a socket is open

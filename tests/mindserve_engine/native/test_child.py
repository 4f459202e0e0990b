"""One engine process: where its sockets live, what it inherits, what happens when there is no room for it."""

import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.native import child
from mindserve_engine.native.child import describe_exit, environment
from mindserve_engine.native.process import NativeEngine
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

    def watch(socket: object, path: Path) -> None:
        bind(socket, path)
        modes.append(path.parent.stat().st_mode & 0o777)

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

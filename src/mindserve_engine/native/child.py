"""One engine process as its parent sees it: started, spoken to over two sockets, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import zmq

from mindserve_engine.native.lifeline import send_block
from mindserve_engine.native.wire import Dying, FromCore, Setup, ToCore, decode_from_core, encode, pack, protocol
from mindserve_engine.options import EngineOptions

_MAX_MESSAGES_PER_TURN: Final = 64
"""Then the event loop gets its turn."""
_STDERR: Final = 2
_WAIT_SETTINGS: Final = frozenset({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
"""Whoever sets one of them has decided."""
_SPIN_COUNT: Final = "1000"
"""Turns a thread waits awake at the end of each parallel piece before it sleeps. OpenMP's own 300,000 (about 1 ms)
make the threads of a busy machine wait for one another's time slices: with other work on the cores a decode step grew
from 16 to several hundred ms, against 160 ms with this. On a quiet machine a lone stream loses about a tenth by it."""
_MAX_PLACE_LENGTH: Final = 70
"""Of the 100 or so characters that the name of a socket may have."""


class Child:
    """A running engine process. All methods and callbacks belong to the event loop it was made in."""

    def __init__(
        self,
        options: EngineOptions,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        on_message: Callable[[FromCore], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """``on_exit`` gets the exit status as ``subprocess`` tells it: negative for signals.

        Raises ``OSError`` or ``zmq.ZMQError`` when the machine has no room for another process.
        """
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_exit = on_exit
        self._is_garbled = False
        self.exited: asyncio.Future[int] = self._loop.create_future()
        with contextlib.ExitStack() as stack:
            self._directory = _socket_directory()
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._requests = _bind(context, zmq.PUSH, self._directory / "requests", stack)
            self._results = _bind(context, zmq.PULL, self._directory / "results", stack)
            self._process = self._spawn(options)
            self._resources = stack.pop_all()
        self._loop.add_reader(self._results.fileno(), self.receive)
        threading.Thread(target=self._wait, name="engine-exit", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToCore) -> None:
        """Never blocks; what is sent to a process that is not ready or has died is lost."""
        if self._requests.closed:
            return
        with contextlib.suppress(zmq.Again):  # nobody at the other end
            self._requests.send_multipart(pack(message), zmq.NOBLOCK, copy=False)

    def receive(self) -> None:
        """Hand over the messages that have come. One that cannot be read is the last: nothing more can be known of the
        process, which is killed."""
        if not self._receive_some():
            self._loop.call_soon(self.receive)  # the socket's descriptor does not tell again what it has told

    def _receive_some(self) -> bool:
        """Whether that was all."""
        for _ in range(_MAX_MESSAGES_PER_TURN):
            if self._results.closed or self._is_garbled:
                return True
            try:
                message = decode_from_core(self._results.recv(zmq.NOBLOCK))
            except zmq.Again:
                return True
            except msgspec.DecodeError as error:
                self._is_garbled = True
                message = Dying(f"the engine process sent a message that cannot be read ({error})")
                self.kill()
            self._on_message(message)
        return False

    def kill(self) -> None:
        self._process.kill()

    async def end(self, grace_s: float) -> None:
        """Wait for the process to end by itself; after ``grace_s`` it is killed."""
        await asyncio.wait([self.exited], timeout=grace_s)
        self.kill()
        await asyncio.wait([self.exited])

    def _spawn(self, options: EngineOptions) -> subprocess.Popen[bytes]:
        setup = Setup(
            protocol=protocol(),
            options=options,
            socket_directory=self._directory,
            parent_pid=os.getpid(),
            heartbeat_s=min(1.0, options.heartbeat_timeout_s / 4),
        )
        process = subprocess.Popen(
            # -P: nothing of the working directory is imported
            [sys.executable, "-P", "-m", "mindserve_engine.native.core"],
            stdin=subprocess.PIPE,
            stdout=_STDERR,  # standard output belongs to the parent
            env=environment(options),
            bufsize=0,
            process_group=0,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit tells
            send_block(process.stdin.fileno(), encode(setup))
        return process

    def _wait(self) -> None:
        status = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the event loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._exit, status)

    def _exit(self, status: int) -> None:
        if self.exited.done():
            return
        if not self._receive_some():  # its last words come last
            self._loop.call_soon(self._exit, status)
            return
        self._loop.remove_reader(self._results.fileno())
        self._resources.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.exited.set_result(status)
        self._on_exit(status)


def environment(options: EngineOptions) -> dict[str, str]:
    """The environment of an engine process: what the numeric libraries read once, when they are loaded."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_threads = str(options.num_threads or max(1, num_cores // options.num_instances))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), num_threads)
    waiting = {} if _WAIT_SETTINGS & os.environ.keys() else {"GOMP_SPINCOUNT": _SPIN_COUNT}
    # devices are loaded by name; without this torch imports every accelerator package it finds
    return {**os.environ, **threads, **waiting, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def describe_exit(status: int) -> str:
    """An exit status for people: "signal 9 (SIGKILL)"."""
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"signal {-status}"


def _socket_directory() -> Path:
    """A new directory only this user can enter, with a name short enough for sockets."""
    place = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="mindserve-", dir=place if len(place) <= _MAX_PLACE_LENGTH else "/tmp"))  # noqa: S108


def _bind(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, path: Path, resources: contextlib.ExitStack
) -> zmq.Socket[bytes]:
    """A socket that is closed with ``resources``."""
    socket = context.socket(kind)
    resources.callback(socket.close)
    socket.set_hwm(0)
    socket.linger = 0  # what was not delivered to a process that ended never will be
    socket.bind(f"ipc://{path}")
    return socket

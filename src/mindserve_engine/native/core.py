"""The engine process: loads the model, then serves requests from one socket to another until it is told to close."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, Protocol

import zmq

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Runner
from mindserve_engine.native.lifeline import receive_block, tie_to_parent
from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.waker import Waker
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
    OtherVersion,
    Ready,
    Setup,
    Step,
    ToCore,
    decode_setup,
    encode,
    unpack,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo

_CONNECTING_MS: Final = 100
"""Between looks whether the parent still lives."""

log = logging.getLogger(__name__)


class Loaded(Protocol):
    """What the function named by ``EngineOptions.runner`` returns."""

    @property
    def runner(self) -> Runner: ...

    @property
    def info(self) -> EngineInfo: ...


class Channel:
    """The process's end of the two sockets."""

    def __init__(self, setup: Setup) -> None:
        """Connect, and remove the sockets' names: whatever ends either process later, nothing is left behind. Of a
        parent that has gone too, which is to be noticed next."""
        self._context = zmq.Context(1)
        self._requests = self._context.socket(zmq.PULL)
        self._results = self._context.socket(zmq.PUSH)
        for socket in (self._requests, self._results):
            socket.set_hwm(0)
        _connect(self._requests, setup.requests_address, setup.parent_pid)
        _connect(self._results, setup.results_address, setup.parent_pid)
        shutil.rmtree(setup.socket_directory, ignore_errors=True)
        self._sending = threading.Lock()  # sockets know nothing of threads
        self._waker = Waker()

    def send(self, message: FromCore) -> None:
        """Any thread may call it."""
        data = encode(message)
        with self._sending:
            self._results.send(data)

    def wake(self) -> None:
        """End the waiting of ``receive``, of the next one if none waits now. Any thread may call it."""
        self._waker.wake()

    def receive(self, timeout_s: float) -> Iterator[ToCore]:
        """All messages that are there; when there are none, those that come within ``timeout_s``."""
        if timeout_s:
            self._waker.wait(self._requests, timeout_s)
        while True:
            try:
                yield unpack(self._requests.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def close(self) -> None:
        """Returns when what was sent has left, or after a second."""
        self._context.destroy(linger=1000)
        self._waker.close()


def _connect(socket: zmq.Socket[bytes], address: str, parent_pid: int) -> None:
    """Return once the connection stands, or can stand no more because the parent has ended."""
    monitor = socket.get_monitor_socket(zmq.EVENT_CONNECTED)
    socket.connect(address)
    while not monitor.poll(_CONNECTING_MS) and os.getppid() == parent_pid:
        pass
    socket.disable_monitor()


@contextmanager
def heartbeats(channel: Channel, heartbeat_s: float) -> Iterator[None]:
    """Tell the parent that the process is alive while the body keeps the main thread busy."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(heartbeat_s):
            channel.send(Alive())

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def load(options: EngineOptions, channel: Channel) -> Loaded:
    """Call the function that ``options.runner`` names."""
    module_name, _, function_name = options.runner.partition(":")
    load_runner: Callable[[EngineOptions, Callable[[str, float], None]], Loaded]
    load_runner = getattr(import_module(module_name), function_name)
    loaded = load_runner(options, lambda what, share: channel.send(Loading(what, share)))
    gc.collect()
    gc.freeze()  # the model stays: collections during requests need not look at it
    return loaded


def serve(loop: EngineLoop, channel: Channel, heartbeat_s: float) -> None:
    """Until ``Close``: take in what has come, run a step, tell what came of it."""
    while True:
        aborted: list[str] = []
        for message in channel.receive(heartbeat_s if loop.must_wait else 0):
            match message:
                case Add(request, arrived):
                    loop.add(request, arrived)
                case Abort(request_id, index) if loop.abort(request_id, index) and index is None:
                    aborted.append(request_id)
                case Learn(vocabulary):
                    loop.learn(vocabulary)
                case Close():
                    return
        events = []
        if loop.has_work:
            events = loop.step()
            if not loop.has_work:
                loop.check()
        channel.send(Step(loop.stats(), events, aborted))


def run(setup: Setup, channel: Channel) -> None:
    """The life of the process; a failure is reported in one line to the parent and at length to the log."""
    try:
        with heartbeats(channel, setup.heartbeat_s):
            loaded = load(setup.options, channel)
        loop = EngineLoop(loaded.runner, loaded.info, setup.options, wake=channel.wake)
        channel.send(Ready(loaded.info, loop.stats()))
        try:
            serve(loop, channel, setup.heartbeat_s)
        finally:
            loop.close()
    except EngineError as error:
        channel.send(Dying(str(error)))
        raise
    except Exception as error:
        channel.send(Dying(f"{type(error).__name__}: {' '.join(str(error).split())}"))
        raise


def main() -> int:
    """Exit status 0 after ``Close``."""
    try:
        setup = decode_setup(receive_block())
    except OtherVersion:
        return OTHER_VERSION_STATUS
    channel = Channel(setup)
    tie_to_parent(setup.parent_pid)
    logging.basicConfig(
        format="%(asctime)s %(levelname)s engine[%(process)d] %(name)s: %(message)s", level=logging.INFO
    )
    try:
        run(setup, channel)
    except EngineError as error:
        log.error("%s", error)
        return 1
    except Exception:
        log.exception("the engine process gives up")
        return 1
    finally:
        channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

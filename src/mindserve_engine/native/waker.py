"""Wakes a thread that waits for messages."""

from __future__ import annotations

import contextlib
import socket

import zmq


class Waker:
    """One thread waits, any may wake it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """End the present waiting, or the next."""
        with contextlib.suppress(OSError):  # full: it will wake; closed: nobody waits any more
            self._writer.send(b"\0")

    def wait(self, messages: zmq.Socket[bytes], timeout_s: float) -> None:
        """Until a message is there, ``wake`` is called or the time is over."""
        poller = zmq.Poller()
        poller.register(messages, zmq.POLLIN)
        poller.register(self._reader, zmq.POLLIN)
        if self._reader.fileno() in dict(poller.poll(round(timeout_s * 1000))):
            self._reader.recv(4096)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

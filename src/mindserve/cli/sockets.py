"""Sockets taken before anything slow begins, so that a port in use is found at once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from mindserve.config.listen import Listen
from mindserve.errors import StartupError

_REASONS: Final = {
    errno.EADDRINUSE: "is in use: stop what listens there or choose another with --port",
    errno.EACCES: "may not be opened by this user: choose one from 1024 on",
    errno.EADDRNOTAVAIL: "cannot be opened: the address is not one of this machine's",
}


def bind_all(addresses: Sequence[Listen]) -> list[socket.socket]:
    """One bound, not yet listening socket per address; on failure none stays open. Raises ``StartupError``."""
    with ExitStack() as on_failure:
        bound = [on_failure.enter_context(_bind(address)) for address in addresses]
        on_failure.pop_all()
    return bound


def _bind(address: Listen) -> socket.socket:
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise StartupError(f"the address {address.host} is not known: {error.strerror or error}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(target)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        reason = _REASONS.get(error.errno or 0, f"cannot be opened: {error.strerror or error}")
        raise StartupError(f"port {address.port} on {address.host} {reason}") from error
    return bound


def base_url(address: Listen, bound: socket.socket) -> str:
    """URL under which this machine reaches the socket: what listens everywhere is reached at the loopback address."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    host = loopback.get(address.host, address.host)
    scheme = "http" if address.tls is None else "https"
    port: int = bound.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

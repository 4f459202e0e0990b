import socket

import pytest

from mindserve.cli.sockets import base_url, bind_all
from mindserve.config.listen import Listen, TlsFiles
from mindserve.errors import StartupError


def test_a_port_in_use_is_told_and_nothing_stays_bound() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = Listen(host="127.0.0.1", port=0)
        with pytest.raises(StartupError) as caught:
            bind_all([free, Listen(host="127.0.0.1", port=port)])
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is in use: stop what listens there or choose another with --port"
    )


def test_an_address_of_another_machine_and_an_unknown_name() -> None:
    with pytest.raises(StartupError, match="is not one of this machine's"):
        bind_all([Listen(host="192.0.2.1", port=0)])
    with pytest.raises(StartupError, match="the address no such name is not known"):
        bind_all([Listen(host="no such name", port=0)])


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:{port}"),
        ("localhost", "http://localhost:{port}"),
        ("0.0.0.0", "http://127.0.0.1:{port}"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    address = Listen(host=host, port=0)
    (bound,) = bind_all([address])
    with bound:
        assert base_url(address, bound) == url.format(port=bound.getsockname()[1])


def test_the_url_of_an_ipv6_address_and_of_tls() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert base_url(Listen(host="::", port=0), bound) == f"http://[::1]:{port}"
        tls = TlsFiles(prefix="tls", cert=None, key=None)
        assert base_url(Listen(host="127.0.0.1", port=0, tls=tls), bound) == f"https://127.0.0.1:{port}"

import socket
from collections.abc import Callable
from contextlib import closing

import pytest

from mindserve.cli.serving_machine import EVERY_S, ServingMachine
from mindserve.cli.sockets import bind_all
from mindserve.config.listen import Listen

TIMEOUT_S = 15


class Clock:
    """Looked at as a further machine does: as often as it looks at the serving one."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """One serving machine, as a further one sees it."""

    def __init__(self) -> None:
        self.place = self.listen(0).getsockname()
        self.clock = Clock()
        self.machine = ServingMachine(*self.place, TIMEOUT_S, now=self.clock)

    def listen(self, port: int) -> socket.socket:
        (self.bound,) = bind_all([Listen(host="127.0.0.1", port=port)])
        self.bound.listen()
        return self.bound

    def looks(self, number: int) -> list[bool]:
        found = []
        for _ in range(number):
            self.clock.now += EVERY_S
            found.append(self.machine.is_gone())
        return found


def unreachable(*arguments: object, **settings: object) -> socket.socket:
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def full(*arguments: object, **settings: object) -> socket.socket:
    raise TimeoutError("timed out")


def test_a_machine_is_gone_when_it_was_out_of_reach_for_so_long() -> None:
    seen = Seen()
    with closing(seen.bound):
        assert not any(seen.looks(5))
    assert seen.looks(TIMEOUT_S + 2) == [False] * TIMEOUT_S + [True, True]


@pytest.mark.parametrize("hiccup", [unreachable, full])
def test_one_that_is_out_of_reach_for_less_is_the_same(
    monkeypatch: pytest.MonkeyPatch, hiccup: Callable[..., socket.socket]
) -> None:
    seen = Seen()
    with closing(seen.bound):
        assert not any(seen.looks(2))
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(socket, "create_connection", hiccup)
                assert not any(seen.looks(TIMEOUT_S))
            assert not any(seen.looks(3))


def test_a_pause_of_this_machine_is_none_of_the_serving_one() -> None:
    seen = Seen()
    with closing(seen.bound):
        assert not any(seen.looks(2))
    seen.clock.now += 600
    assert seen.looks(TIMEOUT_S + 1) == [False] * TIMEOUT_S + [True]


def test_a_server_that_listens_anew_is_another_one() -> None:
    seen = Seen()
    with closing(seen.bound):
        assert not any(seen.looks(2))
    assert not any(seen.looks(2))
    with closing(seen.listen(seen.place[1])):
        assert seen.looks(2) == [True, True]


def test_its_name_is_looked_up_until_it_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    seen.machine = ServingMachine("localhost", seen.place[1], TIMEOUT_S, now=seen.clock)
    with closing(seen.bound):
        assert not any(seen.looks(1))
        look_up = socket.getaddrinfo

        def only_numbers(host: str, *arguments: int) -> object:
            return unreachable() if host == "localhost" else look_up(host, *arguments)

        monkeypatch.setattr(socket, "getaddrinfo", only_numbers)
        assert not any(seen.looks(TIMEOUT_S * 2))


def test_a_machine_that_was_never_there_is_waited_for() -> None:
    seen = Seen()
    seen.bound.close()
    assert not any(seen.looks(3 * TIMEOUT_S))
    with closing(seen.listen(seen.place[1])):
        assert not any(seen.looks(3))

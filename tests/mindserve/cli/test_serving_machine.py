from mindserve.cli.serving_machine import EVERY_S, ServingMachine
from mindserve.cli.sockets import bind_all
from mindserve.config.listen import Listen


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += EVERY_S
        return self.now


def test_a_machine_is_gone_when_its_port_was_open_and_is_closed() -> None:
    (bound,) = bind_all([Listen(host="127.0.0.1", port=0)])
    address, port = bound.getsockname()
    machine = ServingMachine(address, port, now=Clock())
    with bound:
        bound.listen()
        assert not any(machine.is_gone() for _ in range(5))
    assert [machine.is_gone() for _ in range(4)] == [False, False, True, True]


def test_a_machine_that_was_never_there_is_waited_for() -> None:
    (bound,) = bind_all([Listen(host="127.0.0.1", port=0)])
    address, port = bound.getsockname()
    bound.close()
    machine = ServingMachine(address, port, now=Clock())
    assert not any(machine.is_gone() for _ in range(10))

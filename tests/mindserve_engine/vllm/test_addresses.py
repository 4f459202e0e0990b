import socket
from typing import Any

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.vllm import addresses
from mindserve_engine.vllm.addresses import numeric


def test_an_address_stays_what_it_is() -> None:
    assert numeric("127.0.0.1") == "127.0.0.1"
    assert numeric("::1") == "::1"
    assert numeric("localhost") in ("127.0.0.1", "::1")


def test_a_name_may_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError(-2, "unknown"), OSError(-2, "unknown"), [(0, 0, 0, "", ("10.0.0.7", 0))]]

    def look_up(*words: object, **more: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "_AGAIN_S", 0.001)
    assert numeric("mindserve-0.mindserve-nodes") == "10.0.0.7"
    answers.append(OSError(-2, "unknown"))
    with pytest.raises(EngineError, match="the serving machine nowhere has no address: unknown"):
        numeric("nowhere", wait_s=0)

import socket
from typing import Any

from mindserve.cli.planes import Plane, plane_servers
from mindserve.config.listen import Listen
from mindserve.config.settings import ServeSettings


async def application(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody calls")


async def test_idle_connections_stay_open_as_long_as_the_settings_say() -> None:
    with socket.socket() as bound:
        plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
        (server,) = plane_servers((plane,), application, ServeSettings())
        assert server.config.timeout_keep_alive == 75
        (server,) = plane_servers((plane,), application, ServeSettings(keep_alive_s=7))
        assert server.config.timeout_keep_alive == 7


async def test_the_application_starts_once_however_many_planes_there_are() -> None:
    with socket.socket() as bound:
        plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
        servers = plane_servers((plane, plane, plane), application, ServeSettings())
    assert [server.config.lifespan for server in servers] == ["on", "off", "off"]

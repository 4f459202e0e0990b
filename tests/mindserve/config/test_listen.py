from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindserve.config.listen import Listen, TlsFiles, listen_addresses
from mindserve.config.load import LoadedConfig

Load = Callable[..., LoadedConfig]


def places(load: Load, **server: object) -> list[tuple[str, int]]:
    loaded = load({"ServerConfig": server})
    return [(listen.host, listen.port) for listen in listen_addresses(loaded.config, loaded.base)]


def test_without_further_ports_there_is_one_socket(load: Load) -> None:
    loaded = load({})
    assert listen_addresses(loaded.config, loaded.base) == (Listen(host="127.0.0.1", port=1025),)
    assert places(load, managementIpAddress="127.0.0.2") == [("127.0.0.1", 1025)]


def test_mindies_three_planes(load: Load, full_mindie: dict[str, Any]) -> None:
    loaded = load(full_mindie)
    assert [(listen.host, listen.port) for listen in listen_addresses(loaded.config, loaded.base)] == [
        ("127.0.0.1", 1025),
        ("127.0.0.2", 1026),
        ("127.0.0.2", 1027),
    ]


def test_planes_at_the_same_address_share_a_socket(load: Load) -> None:
    assert places(load, managementPort=1025, metricsPort=1025) == [("127.0.0.1", 1025)]
    assert places(load, managementPort=1026, metricsPort=1026) == [("127.0.0.1", 1025), ("127.0.0.1", 1026)]
    assert places(load, managementIpAddress="::1", managementPort=1025) == [("127.0.0.1", 1025), ("::1", 1025)]


def test_each_plane_has_its_own_tls_or_that_of_the_business_port(load: Load, tmp_path: Path) -> None:
    names = ["b.pem", "b.key", "m.pem", "m.key"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "ca").mkdir()
    for name in ("one.pem", "two.pem"):
        (tmp_path / "ca" / name).write_text("")
    loaded = load(
        {
            "ServerConfig": {
                "httpsEnabled": True,
                "tlsCaPath": "ca",
                "tlsCaFile": ["one.pem"],
                "tlsCert": "b.pem",
                "tlsPk": "b.key",
                "tlsPkPwd": "b.pwd",
                "managementPort": 1026,
                "managementTlsCert": "m.pem",
                "managementTlsPk": str(tmp_path / "m.key"),
                "managementTlsCaFile": ["two.pem"],
                "metricsPort": 1027,
            }
        }
    )
    business, management, metrics = (listen.tls for listen in listen_addresses(loaded.config, loaded.base))
    assert business == TlsFiles(
        prefix="tls",
        cert=tmp_path / "b.pem",
        key=tmp_path / "b.key",
        key_password=tmp_path / "b.pwd",
        ca=(tmp_path / "ca" / "one.pem",),
    )
    assert management == TlsFiles(
        prefix="managementTls", cert=tmp_path / "m.pem", key=tmp_path / "m.key", ca=(tmp_path / "ca" / "two.pem",)
    )
    assert metrics == business

"""The addresses a server listens on: MindIE's business, management and metrics planes, merged where they coincide."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mindserve.config._generated import Config, ServerConfig


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one plane's TLS. The paths are complete; that they can be read is not said."""

    prefix: str
    """What the plane's keys in ``ServerConfig`` begin with: ``tls``, ``managementTls``, ``metricsTls``."""
    cert: Path | None
    key: Path | None
    key_password: Path | None = None
    ca: tuple[Path, ...] = ()
    """Not empty: clients must show a certificate signed by one of these."""
    crl: tuple[Path, ...] = ()


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """One socket."""

    host: str
    port: int
    """0 lets the system choose."""
    tls: TlsFiles | None = None


class _Plane(msgspec.Struct, frozen=True):
    key_prefix: str
    """In the file."""
    attribute_prefix: str
    """In the generated model."""


_BUSINESS: Final = _Plane("tls", "tls_")
_MANAGEMENT: Final = _Plane("managementTls", "management_tls_")
_METRICS: Final = _Plane("metricsTls", "metrics_tls_")


def listen_addresses(config: Config, base: Path) -> tuple[Listen, ...]:
    """The business socket first, then those of the other planes that have an address of their own."""
    server = config.server_config
    side_host = server.management_ip_address or server.ip_address
    planes = [(server.ip_address, server.port, _BUSINESS)]
    if server.management_port is not None:
        planes.append((side_host, server.management_port, _MANAGEMENT))
    if server.metrics_port is not None:
        planes.append((side_host, server.metrics_port, _METRICS))
    sockets: dict[tuple[str, int], Listen] = {}
    for host, port, plane in planes:
        tls = _tls_files(server, plane, base) if server.https_enabled else None
        sockets.setdefault((host, port), Listen(host=host, port=port, tls=tls))
    return tuple(sockets.values())


def _tls_files(server: ServerConfig, plane: _Plane, base: Path) -> TlsFiles:
    if getattr(server, plane.attribute_prefix + "cert") is None:
        plane = _BUSINESS

    def value(name: str) -> str | None:
        found: str | None = getattr(server, plane.attribute_prefix + name)
        return found

    def files(folder_name: str, list_name: str) -> tuple[Path, ...]:
        folder = value(folder_name) or getattr(server, _BUSINESS.attribute_prefix + folder_name) or ""
        names: list[str] = getattr(server, plane.attribute_prefix + list_name)
        return tuple(base / folder / name for name in names)

    def file(name: str) -> Path | None:
        text = value(name)
        return None if text is None else base / text

    return TlsFiles(
        prefix=plane.key_prefix,
        cert=file("cert"),
        key=file("pk"),
        key_password=file("pk_pwd"),
        ca=files("ca_path", "ca_file"),
        crl=files("crl_path", "crl_files"),
    )

"""Settings of images, videos and recordings, and the hosts they may come from."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from mindserve.config._generated import MediaConfig
from mindserve.config.settings import MIB, DecodeSettings, MediaSettings
from mindserve.errors import StartupError, shown

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

ALLOWED_HOSTS: Final = "ALLOWED_MEDIA_DOMAINS_ENV"
"""MindIE's variable: names and addresses, separated by commas."""

_MAX_HOST_CHARACTERS: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


def canonical_host(text: str) -> str | None:
    """The one form of a host, with neither port nor brackets; ``None`` when it is no name or address in plain form.

    Names are ASCII in lower case without a dot at the end. A name whose last label is a number is an address to the
    system's resolver (127.1, 0x7f.1, 2130706433 are 127.0.0.1), so nothing but four decimal numbers may look like it.
    """
    host = text.lower()
    if not host.isascii() or not 0 < len(host) <= _MAX_HOST_CHARACTERS:
        return None
    if ":" in host:
        return _ipv6(host)
    labels = host.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return None
    return _ipv4(host) if _NUMBER.fullmatch(labels[-1]) else host


def _ipv4(host: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        return None


def _ipv6(host: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return None
    return None if address.scope_id is not None else str(address)


def network_of(text: str) -> Network | None:
    """``None`` when ``text`` is no network, or one with bits that belong to a host."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def media_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the variable allows, canonical. Raises ``StartupError``."""
    entries = [entry.strip() for entry in environ.get(ALLOWED_HOSTS, "").split(",")]
    return tuple(dict.fromkeys(_host(entry) for entry in entries if entry))


def _host(entry: str) -> str:
    host = canonical_host(entry)
    if host is None:
        raise StartupError(
            f"{ALLOWED_HOSTS}: {shown(entry)} is not a host: write names (in ASCII) and addresses alone, separated by"
            " commas, without scheme, port or wildcard"
        )
    return host


def media_root(config: MediaConfig, base: Path) -> str:
    """``base`` is where relative paths start."""
    return os.path.normpath(base / os.path.expanduser(config.media_root))  # noqa: PTH111 - as in config.paths


def media_settings(config: MediaConfig, base: Path, hosts: tuple[str, ...]) -> MediaSettings:
    """``base`` is where relative paths start."""
    return MediaSettings(
        root=media_root(config, base),
        max_image_bytes=config.max_image_size * MIB,
        max_video_bytes=config.max_video_size * MIB,
        max_audio_bytes=config.max_audio_size * MIB,
        max_input_audio_bytes=config.max_input_audio_size * MIB,
        max_parts=config.max_media_parts,
        max_total_bytes=config.max_media_total * MIB,
        max_in_flight_bytes=config.max_media_in_flight * MIB,
        allowed_hosts=hosts,
        allowed_networks=tuple(item.root for item in config.allowed_addresses),
        connect_timeout_s=float(config.connect_timeout),
        read_timeout_s=float(config.read_timeout),
        fetch_timeout_s=float(config.fetch_timeout),
        decode=_decode_settings(config),
    )


def _decode_settings(config: MediaConfig) -> DecodeSettings:
    return DecodeSettings(
        workers=config.decode_workers,
        timeout_s=float(config.decode_timeout),
        cpu_time_s=config.decode_cpu_time,
        memory_bytes=config.decode_memory * MIB,
        max_image_pixels=config.max_image_pixels,
        max_image_tokens=config.max_image_tokens,
        max_video_frames=config.max_video_frames,
        video_fps=float(config.video_fps),
        max_video_tokens=config.max_video_tokens,
        truncate_audio=config.truncate_audio,
    )

"""What bounds media on their way from a request to bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mindserve.config.media import Network, network_of
from mindserve.config.settings import MIB, MediaSettings

MAX_URL_CHARACTERS: Final = 4096
"""Of everything that names a file; data that stands in the request itself has limits in bytes."""

PARALLEL_FETCHES: Final = 4
"""Files of one request that are fetched at a time."""

_DISK_RESERVE: Final = 1.5
"""The document's factor (line 30) for the disk space of a server that downloads media to files."""


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Most bytes of one item, and the setting that says so."""

    max_bytes: int
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Limits and permissions, ready to be compared with."""

    sizes: Mapping[str, SizeLimit]
    """By the type of the part."""
    total: SizeLimit
    """Of all items of a request together."""
    root: str
    """Absolute path, without a slash at its end."""
    allowed_hosts: frozenset[str]
    allowed_networks: tuple[Network, ...]
    connect_s: float
    """For finding an address, and for connecting to one."""
    read_s: float
    fetch_s: float


def media_limits(settings: MediaSettings) -> MediaLimits:
    """``settings`` have been checked: its networks are networks, its hosts canonical."""
    networks = map(network_of, settings.allowed_networks)
    return MediaLimits(
        sizes={
            "image_url": SizeLimit(settings.max_image_bytes, "maxImageSize"),
            "video_url": SizeLimit(settings.max_video_bytes, "maxVideoSize"),
            "audio_url": SizeLimit(settings.max_audio_bytes, "maxAudioSize"),
            "input_audio": SizeLimit(settings.max_input_audio_bytes, "maxInputAudioSize"),
        },
        total=SizeLimit(settings.max_total_bytes, "maxMediaTotal"),
        root=settings.root.rstrip("/"),
        allowed_hosts=frozenset(settings.allowed_hosts),
        allowed_networks=tuple(network for network in networks if network is not None),
        connect_s=settings.connect_timeout_s,
        read_s=settings.read_timeout_s,
        fetch_s=settings.fetch_timeout_s,
    )


def storage_figures(settings: MediaSettings, max_requests: int) -> dict[str, int]:
    """What an operator should know at the start, in MiB: the memory that media may take, by what holds it, and the disk
    space that the document's rule (largest file x concurrent requests x 1.5) asks for, of which this server uses none.
    """
    largest = max(settings.max_image_bytes, settings.max_video_bytes, settings.max_audio_bytes)
    return {
        "memory_mib": settings.max_in_flight_bytes // MIB,
        "passing_mib": min(settings.decode.workers * largest, settings.max_in_flight_bytes) // MIB,
        "decoders_mib": settings.decode.workers * settings.decode.memory_bytes // MIB,
        "disk_mib": 0,
        "disk_by_rule_mib": int(largest * max_requests * _DISK_RESERVE) // MIB,
    }

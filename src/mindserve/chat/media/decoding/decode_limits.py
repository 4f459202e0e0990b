"""How much decoding one item may cost, and how much of it the model sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """Bounds that are checked before the work they bound, in headers and indexes, as far as those tell it."""

    max_aspect: int = 200
    """The longer side of a picture or a frame by the shorter one."""
    max_image_pixels: int = 64 * 1024 * 1024
    """As stored in the file."""
    max_jpeg_scans: int = 100
    """Passes over a progressive JPEG. Each decodes all of its pixels again for a few bytes."""
    max_image_tokens: int = 4096
    """Larger images are made smaller."""

    frames_per_s: float = 2.0
    """Frames of a video that the model sees."""
    min_frames: int = 4
    max_frames: int = 64
    max_video_tokens: int = 8192
    """The more frames, the smaller they are made."""
    max_frame_pixels: int = 4096 * 2304
    """As stored in the file."""
    max_packets: int = 200_000
    """Frames of a file, whether the model sees them or not."""
    max_video_s: float = 3600.0
    max_decoded_pixels: int = 4_000_000_000
    """Of all frames that must be decoded to reach those that are taken."""

    min_audio_s: float = 0.03
    max_audio_s: float = 30.0
    """Or the model's own limit, if that is less."""
    truncate_audio: bool = False
    """Cut longer ones there, instead of refusing them."""
    min_sample_rate: int = 8_000
    max_sample_rate: int = 192_000
    max_channels: int = 8

    max_wall_s: float = 20.0
    """Then the process that decodes is killed."""
    max_cpu_s: int = 30
    max_memory_bytes: int = 1_500_000_000
    """Address space of a process that decodes, its libraries included (about 350 MB)."""

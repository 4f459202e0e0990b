"""Why a picture, a video or a recording does not reach the model."""

from __future__ import annotations

from mindserve.errors import MindserveError


class MediaRejected(MindserveError):
    """The client's bytes are at fault. The text says why and stands after the name of the part they came in."""


class PoolUnavailable(MindserveError):
    """Nothing is known of the bytes: there is no room to decode them now, or no process that could."""

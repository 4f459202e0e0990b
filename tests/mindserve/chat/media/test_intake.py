"""Settings reach the decoders."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.intake import decode_limits
from mindserve.config.settings import DecodeSettings


def test_every_setting_is_a_limit() -> None:
    """Each changes one, and none two."""
    usual = asdict(decode_limits(DecodeSettings()))
    changed = set()
    for field in msgspec.structs.fields(DecodeSettings):
        if field.name == "workers":
            continue
        other = DecodeSettings(**{field.name: not field.default if field.type is bool else field.default * 2})
        limits = asdict(decode_limits(other))
        (name,) = [name for name in limits if limits[name] != usual[name]]
        changed.add(name)
    assert len(changed) == len(msgspec.structs.fields(DecodeSettings)) - 1


def test_defaults_are_those_of_the_decoders() -> None:
    assert decode_limits(DecodeSettings(memory_bytes=DecodeLimits().max_memory_bytes)) == DecodeLimits()

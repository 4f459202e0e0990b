"""Absent and null mean the same in a request (reading R1); past this function nobody tells them apart."""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeVar

from msgspec import UnsetType

T = TypeVar("T")


def given(value: T | UnsetType | None) -> T | None:
    """The value, or None when the field was absent or null."""
    return None if isinstance(value, UnsetType) else value


def filled(value: Sized | UnsetType | None) -> bool:
    """Present and not empty: ``[]`` means the same as absent for stop texts, tools and tool calls."""
    return not isinstance(value, UnsetType) and value is not None and len(value) > 0

"""Limits that tests change one at a time, and a media folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mindserve.chat.media.limits import MediaLimits, media_limits
from mindserve.config.settings import MediaSettings

Limits = Callable[..., MediaLimits]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Connections behave as their event loop does: here it is the one that serves."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "media"
    folder.mkdir()
    return folder


@pytest.fixture
def limits(root: Path) -> Limits:
    """Those of an empty config but for the folder and what is given, in the names of the settings."""

    def make(**settings: Any) -> MediaLimits:
        return media_limits(MediaSettings(**{"root": str(root), **settings}))

    return make

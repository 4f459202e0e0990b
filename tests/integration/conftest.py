"""Replies that the integration tests ask for by the word in the user's message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests import tool_replies
from tests.serving import Model, scripted_model

REPLIES: list[dict[str, Any]] = [
    {"contains": "hang at once", "pieces": ["never"], "hang_after": 0},
    {"contains": "hang after two", "pieces": ["one", " two", " three"], "hang_after": 2},
    {"contains": "fail at once", "pieces": ["never"], "fail_after": 0},
    {"contains": "fail after two", "pieces": ["one", " two", " three"], "fail_after": 2},
    {"contains": "sequence fails", "pieces": ["one", " two", " three"], "fail_sequence_after": 2},
    {"contains": "crash after two", "pieces": ["one", " two", " three"], "crash_after": 2},
    {"contains": "endless", "pieces": ["a", "b"], "repeat": True},
    {"contains": "count", "pieces": ["1", " 2", " 3", " 4", " 5"]},
    {"contains": "letters", "pieces": ["A", "B", "CD", "EF", "G"]},
    {"contains": "emoji", "pieces": ["日本", "語", " ", "👩", "\u200d", "🚀", "!"]},
    {"default": True, "pieces": ["Hello", "!", " How are you?"]},
]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Connections behave as their event loop does: here it is the one that serves."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """The scripted model with room for everybody."""
    return scripted_model(tmp_path, REPLIES)


@pytest.fixture
def narrow_model(tmp_path: Path) -> Model:
    """One request at a time, one more may wait."""
    return scripted_model(tmp_path, REPLIES, max_batch_size=1, max_waiting=1)


@pytest.fixture
def caller(tmp_path: Path) -> Model:
    """The scripted model that calls tools."""
    return scripted_model(tmp_path, tool_replies.REPLIES)


@pytest.fixture
def thinker(tmp_path: Path) -> Model:
    """The same, thinking before it answers."""
    return scripted_model(tmp_path, {"replies": tool_replies.REPLIES, "chat_template": tool_replies.TEMPLATE})

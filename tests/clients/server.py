"""The server that clients are tried against, and what it says to their words."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import MODEL, Live, running, scripted_model

_CALL: Final = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
REPLIES: Final[list[dict[str, Any]]] = [
    {"contains": "21 degrees", "pieces": ["It", " is", " 21", " degrees", "."]},
    {"contains": "weather in Oslo", "pieces": list(_CALL)},
    {"contains": "as json", "pieces": list('{"city": "Oslo", "degrees": 21}')},
    {"contains": "fail", "pieces": ["one", " two", " three"], "fail_after": 2},
    {"contains": "count", "pieces": ["1", " 2", " 3", " 4", " 5"]},
    {"default": True, "pieces": ["What?"]},
]


@asynccontextmanager
async def serving(dialect: Dialect) -> AsyncIterator[Live]:
    """A server of that dialect over the scripted engine."""
    with tempfile.TemporaryDirectory() as folder:
        model = scripted_model(Path(folder), REPLIES)
        async with running(model, ServeSettings(model_name=MODEL, dialect=dialect)) as live:
            yield live

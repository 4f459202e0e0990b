"""The same scripted runs in both dialects, byte for byte; `python -m tests.golden.dialects` writes the files anew.

Read the diff before committing it: each difference between two files of a run is a row of the table of dialects.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2

from mindserve.api.app import app_of
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import MODEL, make_server, numbered_ids, prompt_body, scripted_model

FOLDER: Final = Path(__file__).parent / "dialects"
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_CALLS: Final = [
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "北京"}}</tool_call>',
]
_FIGURES: Final = {"queue_wait_us": [5149, 60, 39], "step_ms": [200.4, 28.5], "prompt_tokens": 21}
_REPLIES: Final[list[dict[str, Any]]] = [
    {"contains": "weather", "pieces": _CALLS, **_FIGURES},
    {"contains": "twice", "pieces": ["One", "."], **_FIGURES, "others": [{"pieces": ["Two", ",", " too", "."]}]},
    {"contains": "break", "pieces": ["It", " breaks"], "fail_after": 1},
    {"default": True, "pieces": ["Good", " day", "."], "logprobs": [-0.25, -0.5], **_FIGURES},
]
_USAGE: Final = {"stream_options": {"include_usage": True}}
RUNS: Final[dict[str, dict[str, Any]]] = {
    "text": prompt_body("greet"),
    "text-stream": prompt_body("greet", stream=True),
    "usage-stream": prompt_body("greet", stream=True, **_USAGE),
    "logprobs-stream": prompt_body("greet", stream=True, logprobs=True, top_logprobs=1),
    "calls": prompt_body("weather", tools=[_WEATHER]),
    "calls-stream": prompt_body("weather", tools=[_WEATHER], stream=True, **_USAGE),
    "two-sequences": prompt_body("twice", n=2),
    "two-sequences-stream": prompt_body("twice", n=2, stream=True, **_USAGE),
    "broken-stream": prompt_body("break", stream=True, **_USAGE),
    "broken": prompt_body("break"),
    "refused": prompt_body("greet", temperature=-1),
    "unknown-model": prompt_body("greet", model="other"),
}


async def _transcript(name: str, dialect: Dialect, folder: Path) -> bytes:
    """Status and body."""
    model = scripted_model(folder, _REPLIES)
    await model.engine.start()
    server = make_server(
        model,
        ServeSettings(model_name=MODEL, dialect=dialect),
        unix_time=lambda: 1768211100.7,
        completion_ids=numbered_ids(3),
        call_ids=(f"call_{number:08}" for number in itertools.count()),
    )
    transport = httpx2.ASGITransport(app=app_of(server))
    async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
        response = await client.post("/v1/chat/completions", json={**RUNS[name]})
    await model.engine.close()
    return b"%d\n%s\n" % (response.status_code, response.content.rstrip(b"\n"))


def transcripts() -> Iterator[tuple[str, Dialect]]:
    """All of them, by run and dialect."""
    yield from itertools.product(RUNS, Dialect)


def file_of(name: str, dialect: Dialect) -> Path:
    return FOLDER / f"{name}.{dialect.value}.txt"


async def transcript(name: str, dialect: Dialect) -> bytes:
    """As the server answers now."""
    with tempfile.TemporaryDirectory() as folder:
        return await _transcript(name, dialect, Path(folder))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, dialect in transcripts():
        file_of(name, dialect).write_bytes(asyncio.run(transcript(name, dialect)))


if __name__ == "__main__":
    main()

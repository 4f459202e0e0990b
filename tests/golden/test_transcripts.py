"""The text examples of the document, byte for byte as this server answers them.

The suite's golden transcripts (``conformance/golden_cases.py``) with the ids and times of the document: here even those
bytes are the server's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml

from mindserve.api.app import app_of
from mindserve.config.settings import ServeSettings
from tests.serving import make_server, numbered_ids, scripted_model

DATA = Path(__file__).parents[2] / "conformance" / "golden"
EXAMPLES = Path(__file__).parents[2] / "spec" / "examples"
CASES = sorted(path.stem for path in DATA.glob("*.yaml"))


def _request(case: dict[str, Any]) -> dict[str, Any]:
    """The request: an example of the contract, with some fields replaced (null takes one away)."""
    base = json.loads((EXAMPLES / case["example"]).read_text("utf-8")) if "example" in case else {}
    merged = {**base, **case.get("fields", {})}
    return {name: value for name, value in merged.items() if name not in case.get("without", ())}


async def _answer(case: dict[str, Any], folder: Path) -> httpx2.Response:
    request = _request(case)
    model = scripted_model(folder, [{"default": True, **case["reply"]}])
    await model.engine.start()
    settings = ServeSettings(model_name=request["model"], full_text_enabled=case.get("full_text", False))
    server = make_server(
        model, settings, unix_time=lambda: case["created"] + 0.7, completion_ids=numbered_ids(case["number"])
    )
    transport = httpx2.ASGITransport(app=app_of(server))
    async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
        return await client.post("/v1/chat/completions", json=request)


def _expected(name: str) -> bytes:
    """Files end with a newline for the sake of editors; a JSON body has none."""
    stream = DATA / f"{name}.sse"
    return stream.read_bytes() if stream.exists() else (DATA / f"{name}.json").read_bytes().removesuffix(b"\n")


def test_there_are_transcripts() -> None:
    assert len(CASES) >= 7


@pytest.mark.parametrize("name", CASES)
async def test_transcript(name: str, tmp_path: Path) -> None:
    response = await _answer(yaml.safe_load((DATA / f"{name}.yaml").read_text("utf-8")), tmp_path)
    assert response.content == _expected(name)
    assert response.status_code == 200
    is_stream = (DATA / f"{name}.sse").exists()
    assert response.headers["content-type"] == ("text/event-stream" if is_stream else "application/json")


@pytest.mark.parametrize(("name", "example"), [("first-turn", "first-turn"), ("second-turn", "second-turn")])
def test_the_document_says_the_same(name: str, example: str) -> None:
    """Two examples contradict nothing: all that is between the document's bytes and ours is white space."""
    document = (EXAMPLES / "responses" / f"{example}.json").read_bytes()
    assert msgspec.json.format(document, indent=-1) == _expected(name)


def test_full_text_ends_as_in_the_document() -> None:
    ours = _expected("stream-full-text").split(b"\n\n")
    document = (EXAMPLES / "streams" / "full-text.sse").read_bytes().split(b"\n\n")
    opening, *deltas = (json.loads(event.removeprefix(b"data: ")) for event in ours[:-2])
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    printed = [json.loads(event.removeprefix(b"data: ")) for event in document[: len(deltas)]]
    for event in printed:
        event["choices"][0]["logprobs"] = None  # E2
    assert deltas == printed

"""The same scripted runs in both dialects, byte for byte; what differs is what the table of dialects says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mindserve.config.settings import Dialect
from tests.golden.dialects import FOLDER, RUNS, file_of, transcript, transcripts

ONLY_OURS = {"prefill_time", "decode_time_arr", "batch_size", "queue_wait_time", "full_text"}


@pytest.mark.parametrize(("name", "dialect"), list(transcripts()))
async def test_the_bytes_are_as_they_were(name: str, dialect: Dialect) -> None:
    assert await transcript(name, dialect) == file_of(name, dialect).read_bytes()


def test_there_is_a_file_for_each_run_and_no_other() -> None:
    assert set(FOLDER.iterdir()) == {file_of(name, dialect) for name, dialect in transcripts()}


def _bodies(name: str, dialect: Dialect) -> list[Any]:
    status, _, text = file_of(name, dialect).read_text("utf-8").partition("\n")
    if status != "200" or not name.endswith("-stream"):
        return [json.loads(text)]
    events = [event.removeprefix("data: ") for event in text.strip().split("\n\n")]
    return [json.loads(event) for event in events if event != "[DONE]"]


def _as_theirs(body: Any) -> Any:
    """A body of the document's put into OpenAI's shape by what D1 and D13 say, without the server's own code."""
    if isinstance(body, list):
        return [_as_theirs(item) for item in body]
    if not isinstance(body, dict):
        return body
    made = {key: _as_theirs(item) for key, item in body.items() if key not in ONLY_OURS}
    if "tool_calls" in made and "role" in made and "content" in made:
        if made["tool_calls"]:
            made["content"] = made["content"] or None
        else:
            del made["tool_calls"]
        made["refusal"] = None
    return made


@pytest.mark.parametrize("name", ["text", "calls", "two-sequences"])
def test_whole_answers_differ_by_the_table_alone(name: str) -> None:
    (ours,), (theirs,) = (_bodies(name, dialect) for dialect in Dialect)
    assert _as_theirs(ours) == theirs


@pytest.mark.parametrize("name", [name for name in RUNS if name.endswith("-stream") and not name.startswith("broken")])
def test_streams_differ_by_the_table_alone(name: str) -> None:
    ours, theirs = (_bodies(name, dialect) for dialect in Dialect)
    asks = "stream_options" in RUNS[name]
    usage = theirs.pop() if asks else None
    seen: set[int] = set()
    for mine, other in zip(ours, theirs, strict=True):
        mine.pop("usage", None)
        if asks:
            mine["usage"] = None
        choice = mine["choices"][0]
        if choice["index"] in seen:
            del choice["delta"]["role"]
            if choice["delta"].get("content") == "":
                del choice["delta"]["content"]
        seen.add(choice["index"])
        assert _as_theirs(mine) == other
    if usage is not None:
        (whole,) = _bodies(name.removesuffix("-stream").replace("usage", "text"), Dialect.OPENAI)
        assert (usage["choices"], usage["usage"]) == ([], whole["usage"])


def test_errors_say_the_same_in_both() -> None:
    for name in ("broken", "broken-stream", "refused", "unknown-model"):
        ours, theirs = (_bodies(name, dialect)[-1]["error"] for dialect in Dialect)
        assert ours == theirs["message"]

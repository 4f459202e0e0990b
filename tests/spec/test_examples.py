"""The document's examples against the contract: valid, except for the contradictions that E1 to E13 name."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "spec" / "examples"
END = "[DONE]"

REQUESTS = {
    "text-stream.json",
    "text.json",
    "second-turn.json",
    "image-plain.json",
    "image-object.json",
    "image-file-url.json",
    "image-data-url.json",
    "input-audio.json",
}
RESPONSES = {"single-turn.json", "first-turn.json", "second-turn.json", "two-sequences.json"}
STREAMS = {"two-sequences.sse", "empty-content.sse", "full-text.sse"}

# (file, place): reading. Places are instance paths; in a stream they begin with the number of the event. A key that is
# missing is given with the place of its object. Counting faults of the figures are places as well.
DEVIATIONS = {
    ("single-turn.json", "id"): "E1",
    ("single-turn.json", "choices/0: logprobs"): "E2",
    ("single-turn.json", "choices/0/message: tool_calls"): "E4",
    ("two-sequences.json", "choices/0/message/tool_calls"): "E4",
    ("two-sequences.json", "choices/1/message/tool_calls"): "E4",
    ("two-sequences.json", "usage/batch_size has 10 entries, not 5"): "E7",
    ("two-sequences.json", "usage/queue_wait_time has 10 entries, not 5"): "E7",
    ("two-sequences.sse", "0: no opening chunk of choice 0"): "E9",
    ("two-sequences.sse", "1: no opening chunk of choice 1"): "E9",
    ("two-sequences.sse", "8/usage: prompt_tokens_details"): "E5",
    **{("empty-content.sse", f"{n}/choices/0: logprobs"): "E2" for n in range(13)},
    **{("empty-content.sse", f"{n}: nothing new"): "E10" for n in range(1, 12)},
    **{("full-text.sse", f"{n}/choices/0: logprobs"): "E2" for n in range(10)},
    ("full-text.sse", "0: no opening chunk of choice 0"): "E9",
}


def _faults(validator: Any, instance: Any, prefix: str = "") -> set[str]:
    found = set()
    for error in validator.iter_errors(instance):
        place = "/".join([*([prefix] if prefix else []), *map(str, error.instance_path)])
        missing = re.fullmatch(r'"(\w+)" is a required property', error.message)
        found.add(f"{place}: {missing[1]}" if missing else place)
    return found


def _figures(usage: dict[str, Any], longest: int, prefix: str = "") -> set[str]:
    """S3: arrays as long as the longest sequence, and a total that adds up."""
    found = {
        f"{prefix}usage/{key} has {len(usage[key])} entries, not {longest}"
        for key in ("batch_size", "queue_wait_time")
        if len(usage[key]) != longest
    }
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
        found.add(f"{prefix}usage/total_tokens")
    return found


def _events(name: str) -> list[str]:
    """Frames of a stream, checked byte by byte: `data: ` + text + two line feeds (S5)."""
    raw = (EXAMPLES / "streams" / name).read_bytes().decode()
    assert "\r" not in raw
    assert raw.endswith("\n\n")
    frames = raw[:-2].split("\n\n")
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame.removeprefix("data: ") for frame in frames]


def _stream_deviations(name: str, validator: Any) -> set[str]:
    *events, end = _events(name)
    assert end == END
    found: set[str] = set()
    opened: set[int] = set()
    finished: set[int] = set()
    identity = set()
    for number, event in enumerate(events):
        chunk = json.loads(event)
        found |= _faults(validator, chunk, str(number))
        identity.add((chunk["id"], chunk["created"], chunk["model"]))
        (choice,) = chunk["choices"]
        index = choice["index"]
        assert index not in finished
        text = choice["delta"]["content"]
        if index not in opened:
            opened.add(index)
            if text:
                found.add(f"{number}: no opening chunk of choice {index}")
        elif not text and choice["finish_reason"] is None:
            found.add(f"{number}: nothing new")
        assert ("usage" in chunk) == (choice["finish_reason"] is not None)
        if "usage" in chunk:
            finished.add(index)
            found |= _figures(chunk["usage"], chunk["usage"]["completion_tokens"], f"{number}/")
    assert finished == opened
    assert len(identity) == 1
    return found


def _expected(name: str) -> set[str]:
    return {place for file, place in DEVIATIONS if file == name}


def test_all_examples_are_known() -> None:
    found = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.is_file()}
    assert found == (
        {f"requests/{name}" for name in REQUESTS}
        | {f"responses/{name}" for name in RESPONSES}
        | {f"streams/{name}" for name in STREAMS}
    )


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_requests_are_valid(request_validator: Any, name: str) -> None:
    """No request of the document is refused, -1 for top_k (E6) and placeholders (E12) included."""
    body = json.loads((EXAMPLES / "requests" / name).read_text(encoding="utf-8"))
    assert _faults(request_validator, body) == set()


@pytest.mark.parametrize("name", sorted(RESPONSES))
def test_responses_deviate_as_listed(validators: dict[str, Any], name: str) -> None:
    body = json.loads((EXAMPLES / "responses" / name).read_text(encoding="utf-8"))
    longest = len(body["decode_time_arr"]) + 1
    assert _faults(validators["ChatCompletion"], body) | _figures(body["usage"], longest) == _expected(name)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_streams_deviate_as_listed(validators: dict[str, Any], name: str) -> None:
    assert _stream_deviations(name, validators["ChatCompletionChunk"]) == _expected(name)


def test_listed_deviations_belong_to_files_and_readings(spec_path: Path) -> None:
    text = (spec_path / "docs" / "interpretations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (E\d+) \|(.*)$", text, re.MULTILINE))
    for (name, place), reading in DEVIATIONS.items():
        assert name in RESPONSES | STREAMS, place
        assert name in rows[reading], (name, reading)


def test_keys_of_the_examples_stand_in_the_order_of_the_contract(schemas: dict[str, Any]) -> None:
    def check(component: str, value: dict[str, Any]) -> None:
        order = [key for key in schemas[component]["properties"] if key in value]
        assert list(value) == order

    for name in sorted(RESPONSES):
        body = json.loads((EXAMPLES / "responses" / name).read_text(encoding="utf-8"))
        check("ChatCompletion", body)
        check("Usage", body["usage"])
        for choice in body["choices"]:
            check("Choice", choice)
            check("AssistantMessage", choice["message"])
    for name in sorted(STREAMS):
        for event in _events(name)[:-1]:
            chunk = json.loads(event)
            check("ChatCompletionChunk", chunk)
            check("ChunkChoice", chunk["choices"][0])
            check("ChunkDelta", chunk["choices"][0]["delta"])


def test_full_text_is_cumulative() -> None:
    """S15 and E13: each content begins with the one before, the last equals full_text."""
    chunks = [json.loads(event) for event in _events("full-text.sse")[:-1]]
    texts = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert texts[-1] == texts[-2] == chunks[-1]["full_text"]
    assert [number for number, chunk in enumerate(chunks) if "full_text" in chunk] == [len(chunks) - 1]


# Lines 171 to 349 describe four forms of each medium without spelling all of them out.
FORMS = [
    "demo.png",
    {"url": "https://media.example.org/demo.png"},
    {"url": "file://demo.png"},
    {"url": "data:image/png;base64,AAAA"},
]


@pytest.mark.parametrize("kind", ["image_url", "video_url", "audio_url"])
@pytest.mark.parametrize("form", FORMS, ids=["plain", "object", "file", "data"])
def test_media_take_every_form(request_validator: Any, kind: str, form: Any) -> None:
    message = {"role": "user", "content": [{"type": kind, kind: form}]}
    assert request_validator.is_valid({"model": "m", "messages": [message]})

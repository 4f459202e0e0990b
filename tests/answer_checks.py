"""What the tables of the contract say of every answer (readings S1 to S12), checked on the bytes that came.

Each check takes the request, so that it knows what was asked for. Nothing here knows of the server's own code.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jsonschema_rs

from conformance.wishes import Wishes

Validators = Mapping[str, jsonschema_rs.Draft202012Validator]
Schemas = dict[str, Any]
STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
DONE: Final = "[DONE]"


@dataclass
class Told:
    """What an answer says of one sequence."""

    text: str = ""
    finish: str | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    num_tokens: int | None = None
    """None where the answer does not say it of one sequence."""


@dataclass(frozen=True)
class Vocabulary:
    """What is known of the served model's tokens."""

    token_bytes: dict[int, bytes]
    """By id; those without a text are missing."""
    special_tokens: frozenset[str]
    eos_token: str


@dataclass
class Wish(Wishes):
    """A taken request of a served model."""

    asked: dict[str, Any]
    vocabulary: Vocabulary
    max_iter_times: int
    max_context: int

    @property
    def stops(self) -> list[str]:
        stop = self.get("stop", [])
        return [stop] if isinstance(stop, str) else stop

    @property
    def stop_tokens(self) -> set[bytes]:
        """Those that can be told by their bytes."""
        ids = [one for one in self.get("stop_token_ids", []) if type(one) is int]
        return {self.vocabulary.token_bytes[one] for one in ids if one in self.vocabulary.token_bytes}

    @property
    def keeps_stop(self) -> bool:
        return bool(self.get("include_stop_str_in_output", False))

    @property
    def shows_special(self) -> bool:
        return self.get("skip_special_tokens", True) is False

    @property
    def bond(self) -> dict[str, Any] | None:
        """The JSON Schema that the text is bound to."""
        form = self.get("response_format") or {}
        if form.get("type") == "json_object":
            return {"type": "object"}
        schema: dict[str, Any] | None = form["json_schema"]["schema"] if form.get("type") == "json_schema" else None
        return schema

    @property
    def has_penalties(self) -> bool:
        neutral = {"presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1}
        return any(self.get(name, value) != value for name, value in neutral.items())

    def max_tokens(self, num_prompt: int) -> int:
        asked = self.get("max_completion_tokens", self.get("max_tokens", self.max_iter_times))
        return int(min(asked, self.max_iter_times, self.max_context - num_prompt))


# ----------------------------------------------------------------------------------------------------------- shapes


def keys_in_order(value: Any, schema: dict[str, Any], schemas: Schemas) -> None:
    """S2, S3, S6: keys come in the order of the contract's tables, at every level."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        named = schema.get("properties") or next(
            schemas[one["$ref"].rpartition("/")[2]]["properties"] for one in schema["anyOf"] if "$ref" in one
        )
        assert list(value) == [name for name in named if name in value]
        for name, item in value.items():
            keys_in_order(item, named[name], schemas)
    elif isinstance(value, list):
        for item in value:
            keys_in_order(item, schema["items"], schemas)


def parse(text: str, component: str, validators: Validators, schemas: Schemas) -> dict[str, Any]:
    """S5, E11: compact JSON that the contract describes."""
    assert not re.search(r"\s", STRINGS.sub("", text)), text
    body: dict[str, Any] = json.loads(text)
    validators[component].validate(body)
    keys_in_order(body, schemas[component], schemas)
    return body


def check_refusal(request: dict[str, Any], text: str, validators: Validators, schemas: Schemas) -> None:
    """D2, D3: the text names a field of the request."""
    body = parse(text, "ErrorBody", validators, schemas)
    assert body["error_type"] == "Input Validation Error"
    assert any(name in body["error"] for name in request), body


def check_usage(usage: dict[str, Any]) -> None:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
    assert len(usage["batch_size"]) == len(usage["queue_wait_time"])
    assert "completion_tokens_details" not in usage  # no chain of thought here


# ------------------------------------------------------------------------------------------------------ whole answer


def check_completion(wish: Wish, text: str, validators: Validators, schemas: Schemas) -> tuple[str, list[Told]]:
    """A body; returns its id and what it says."""
    body = parse(text, "ChatCompletion", validators, schemas)
    assert body["model"] == wish.asked["model"]
    assert [choice["index"] for choice in body["choices"]] == list(range(wish.num_choices))
    told = [_told(wish, choice) for choice in body["choices"]]
    usage = body["usage"]
    check_usage(usage)
    num_longest = len(usage["batch_size"])
    if wish.num_top is not None:
        assert max(len(one.entries) for one in told) == num_longest
        assert sum(len(one.entries) for one in told) == usage["completion_tokens"]
    if len(told) == 1:
        told[0].num_tokens = usage["completion_tokens"]
        assert num_longest == usage["completion_tokens"]
    limit = wish.max_tokens(usage["prompt_tokens"])
    assert num_longest <= limit
    assert num_longest + len(told) - 1 <= usage["completion_tokens"] <= num_longest * len(told)
    assert len(body["decode_time_arr"]) == num_longest - 1
    assert all(ms == int(ms) for ms in (body["prefill_time"], *body["decode_time_arr"]))
    for one in told:
        check_sequence(wish, one, limit)
    check_rank(wish, told)
    return body["id"], told


def _told(wish: Wish, choice: dict[str, Any]) -> Told:
    assert set(choice["message"]) == {"role", "content", "tool_calls"}
    assert choice["message"]["tool_calls"] == []
    assert (choice["logprobs"] is None) == (wish.num_top is None)
    entries = [] if choice["logprobs"] is None else choice["logprobs"]["content"]
    num_tokens = None if wish.num_top is None else len(entries)
    return Told(choice["message"]["content"], choice["finish_reason"], entries, num_tokens)


def check_rank(wish: Wish, told: list[Told]) -> None:
    """R7: the likeliest sequence first; beams by their mean log-probability, where no penalty counts too."""
    if wish.num_top is None or (wish.has_beams and wish.has_penalties):
        return
    sums = [sum(entry["logprob"] for entry in one.entries) for one in told]
    if wish.has_beams:
        sums = [total / len(one.entries) for total, one in zip(sums, told, strict=True)]
    assert all(first >= second - 1e-4 for first, second in itertools.pairwise(sums)), sums


# ------------------------------------------------------------------------------------------------------------ stream


def events(text: str) -> Iterator[str]:
    """S5: the data of each event; the end mark comes last, and once."""
    assert "\r" not in text
    *frames, rest = text.split("\n\n")
    assert rest == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    *data, last = [frame.removeprefix("data: ") for frame in frames]
    assert last == DONE
    assert DONE not in data
    yield from data


def check_stream(wish: Wish, text: str, validators: Validators, schemas: Schemas) -> tuple[str, list[Told]]:
    """A stream; returns its id and what it says."""
    chunks = [parse(data, "ChatCompletionChunk", validators, schemas) for data in events(text)]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["model"] == wish.asked["model"]
    num = wish.num_choices
    told = [Told() for _ in range(num)]
    assert [chunk["choices"][0]["index"] for chunk in chunks[:num]] == list(range(num))
    for chunk in chunks[:num]:
        [choice] = chunk["choices"]
        assert choice["delta"]["content"] == ""
        assert (choice["finish_reason"], choice["logprobs"], "usage" in chunk) == (None, None, False)
    for chunk in chunks[num:]:
        _take(wish, chunk, told[chunk["choices"][0]["index"]])
    assert all(one.finish is not None for one in told)
    if wish.has_beams:
        assert len(chunks) == 2 * num  # R8: everything of a sequence in one piece
    usages = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    assert len({(usage["prompt_tokens"]) for usage in usages}) == 1
    for one in told:
        check_sequence(wish, one, wish.max_tokens(usages[0]["prompt_tokens"]))
    if wish.has_beams:
        check_rank(wish, told)
    return chunks[0]["id"], told


def _take(wish: Wish, chunk: dict[str, Any], one: Told) -> None:
    [choice] = chunk["choices"]
    assert one.finish is None, "a chunk after the finish"
    assert set(choice["delta"]) == {"role", "content"}
    assert choice["delta"]["content"] or choice["finish_reason"] is not None, "an empty delta (E10)"
    assert "full_text" not in chunk
    assert ("usage" in chunk) == (choice["finish_reason"] is not None)
    assert (choice["logprobs"] is None) == (wish.num_top is None)
    one.text += choice["delta"]["content"]
    one.finish = choice["finish_reason"]
    if choice["logprobs"] is not None:
        one.entries += choice["logprobs"]["content"]
    if one.finish is None:
        return
    usage = chunk["usage"]
    check_usage(usage)
    one.num_tokens = usage["completion_tokens"]
    assert len(usage["batch_size"]) == one.num_tokens
    if wish.num_top is not None:
        assert len(one.entries) == one.num_tokens


# --------------------------------------------------------------------------------------------------------- a sequence


def check_sequence(wish: Wish, one: Told, limit: int) -> None:
    """S9, S11, S12 and R23 of one sequence, streamed or not."""
    assert one.finish in ("stop", "length")
    if one.num_tokens is not None:
        assert 1 <= one.num_tokens <= limit
        assert one.finish == "stop" or one.num_tokens == limit
    is_cut = bool(wish.stops or wish.get("stop_token_ids"))
    if wish.get("ignore_eos", False) and not is_cut and wish.bond is None:
        assert one.finish == "length"
    if wish.bond is not None and not is_cut and one.finish == "stop":
        jsonschema_rs.validate(wish.bond, json.loads(one.text))  # C40
    check_stops(wish, one)
    if wish.num_top is not None:
        check_logprobs(wish, one)
        check_text_of_tokens(wish, one)


def first_match(stops: list[str], text: str) -> tuple[int, int] | None:
    """Begin and end of the match that ends first, of several the longest."""
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    return (min(ends)[0] + min(ends)[1], min(ends)[0]) if ends else None


def check_stops(wish: Wish, one: Told) -> None:
    match = first_match(wish.stops, one.text)
    if match is not None:
        assert wish.keeps_stop, "a stop string is in the text"
        assert one.finish == "stop"
        assert match[1] == len(one.text), "text after a stop string"


def check_logprobs(wish: Wish, one: Told) -> None:
    for entry in one.entries:
        top = [candidate["logprob"] for candidate in entry["top_logprobs"]]
        assert len(top) == wish.num_top
        assert top == sorted(top, reverse=True)
        assert all(math.isfinite(value) and value <= 0 for value in (entry["logprob"], *top))
        for told in (entry, *entry["top_logprobs"]):
            assert told["token"] == bytes(told["bytes"]).decode("utf-8", "replace")
        if top and not wish.has_penalties and not wish.has_beams and wish.bond is None:
            takes_best = wish.get("temperature", 1) == 0 or wish.get("top_k") == 1
            assert entry["logprob"] == top[0] if takes_best else entry["logprob"] <= top[0]


def check_text_of_tokens(wish: Wish, one: Told) -> None:
    """S9, S10, S12: the bytes of the tokens are the text, up to what ended it, and it ended for the reason told."""
    *before, last = one.entries
    is_eos = (not wish.get("ignore_eos", False) or wish.bond is not None) and last["token"] == wish.vocabulary.eos_token
    is_stop_token = bytes(last["bytes"]) in wish.stop_tokens
    assert not any(bytes(entry["bytes"]) in wish.stop_tokens for entry in before), "text after a stop token"
    hides_last = is_stop_token and not is_eos and not wish.keeps_stop
    whole = b"".join(_shown(wish, entry) for entry in (before if hides_last else one.entries)).decode(
        "utf-8", "replace"
    )
    match = first_match(wish.stops, whole)
    if match is not None:
        begin, end = match
        whole = whole[: end if wish.keeps_stop else begin]
    assert one.text == whole
    if last["bytes"] or not wish.get("stop_token_ids"):  # tokens without a text look alike, those that stop and others
        assert one.finish == ("stop" if is_eos or is_stop_token or match is not None else "length")


def _shown(wish: Wish, entry: dict[str, Any]) -> bytes:
    is_left_out = entry["token"] in wish.vocabulary.special_tokens and not wish.shows_special
    return b"" if is_left_out else bytes(entry["bytes"])

"""The oracle in the ``openai`` dialect: good answers pass, and each invariant of it finds its fault."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from conformance.case import Check, Expectation, Kind
from conformance.client import Exchange
from conformance.oracle.registry import INVARIANTS
from tests.conformance.exchanges import (
    CALL,
    JSON_HEADERS,
    SENT,
    call_stream,
    changed,
    entry,
    findings,
    frames_of,
    named,
    refused,
    stream,
    stream_exchange,
    whole,
    whole_exchange,
)

FIGURES = {
    "prompt_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens": 2,
    "total_tokens": 11,
}
STREAMED = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
FAILURE = {"error": {"message": "the engine failed", "type": "server_error", "param": None, "code": None}}


def body(num_choices: int = 1, *, calls: bool = False, logprobs: bool = False) -> dict[str, Any]:
    """A whole answer of two tokens to a sequence."""
    made = whole(num_choices, calls=calls, logprobs=logprobs)
    total = 2 * num_choices
    made = {key: value for key, value in made.items() if key not in ("prefill_time", "decode_time_arr")}
    made["usage"] = {**copy.deepcopy(FIGURES), "completion_tokens": total, "total_tokens": 9 + total}
    for choice in made["choices"]:
        content = None if calls else choice["message"]["content"]
        more = {"tool_calls": [copy.deepcopy(CALL)]} if calls else {}
        choice["message"] = {"role": "assistant", "content": content, "refusal": None, **more}
    return made


def chunks(made: list[Any], *, usage: bool = False, num_choices: int = 1) -> list[Any]:
    """The document's chunks as OpenAI's."""
    opened: set[int] = set()
    told = []
    for one in made:
        (choice,) = copy.deepcopy(one["choices"])
        delta = {key: value for key, value in choice["delta"].items() if key != "role" and value}
        if choice["index"] not in opened:
            delta = {"role": "assistant", "content": ""}
        opened.add(choice["index"])
        head = {key: one[key] for key in ("id", "object", "created", "model")}
        null = {"usage": None} if usage else {}
        told.append({**head, **null, "choices": [{**choice, "delta": delta}]})
    if usage:
        total = 2 * num_choices
        figures = {**FIGURES, "completion_tokens": total, "total_tokens": 9 + total}
        told.append(
            {**{key: made[0][key] for key in ("id", "object", "created", "model")}, "usage": figures, "choices": []}
        )
    return told


def refusal(status: int = 400, **particulars: Any) -> Exchange:
    error = {"message": "top_k must be", "type": "invalid_request_error", "param": "top_k", "code": None, **particulars}
    return Exchange(SENT, status, JSON_HEADERS, json.dumps({"error": error}).encode())


def found(*arguments: Any, **options: Any) -> set[str]:
    return {finding.invariant for finding in findings(*arguments, **options, dialect="openai")}


def test_good_answers_pass() -> None:
    assert found(whole_exchange(body())) == set()
    assert found(whole_exchange(body(2)), {"n": 2}) == set()
    assert found(whole_exchange(body(logprobs=True)), {"logprobs": True, "top_logprobs": 2}) == set()
    assert found(whole_exchange(body(calls=True)), {"max_tokens": 64}, base="named_tool") == set()
    assert found(stream_exchange(chunks(stream())), STREAMED) == set()
    assert found(stream_exchange(chunks(stream(), usage=True)), USAGE) == set()
    assert found(stream_exchange(chunks(stream(2), usage=True, num_choices=2)), {**USAGE, "n": 2}) == set()
    calls = {**STREAMED, "max_tokens": 64}
    assert found(stream_exchange(chunks(call_stream())), calls, base="named_tool") == set()
    assert found(refusal(), expect=refused(400)) == set()
    failed = Expectation(kind=Kind.FAILED)
    broken = stream_exchange(frames_of([*chunks(stream())[:2], FAILURE], done=False))
    assert found(broken, STREAMED, expect=failed) == set()


def test_answers_of_the_other_dialect_do_not_pass() -> None:
    assert {"body-schema", "body-known-keys"} <= found(whole_exchange(whole()))
    assert {"role-once", "usage-chunk"} <= found(stream_exchange(stream()), STREAMED)
    assert "role-once" not in {one.invariant for one in findings(stream_exchange(chunks(stream())), STREAMED)}


def _last_choice(told: list[Any]) -> Any:
    return told[-1]["choices"][0]


STREAMS = [
    ("role-once", STREAMED, lambda told: told[1]["choices"][0]["delta"].update(role="assistant")),
    ("role-once", STREAMED, lambda told: told[0]["choices"][0]["delta"].pop("role")),
    ("usage-chunk", STREAMED, lambda told: told[-1].update(usage=FIGURES)),
    ("usage-chunk", USAGE, lambda told: told.pop()),
    ("usage-chunk", USAGE, lambda told: told.insert(0, told.pop())),
    ("usage-chunk", USAGE, lambda told: told.append(told[-1])),
    ("usage-chunk", USAGE, lambda told: told[-1].update(choices=told[-2]["choices"])),
    ("usage-null", USAGE, lambda told: told[0].pop("usage")),
    ("usage-null", STREAMED, lambda told: told[0].update(usage=None)),
    ("finishing-delta", STREAMED, lambda told: _last_choice(told).update(delta={"content": ""})),
    ("chunk-one-choice", STREAMED, lambda told: told[1].update(choices=[])),
    ("completion-tokens", USAGE, lambda told: told[-1]["usage"].update(completion_tokens=3, total_tokens=12)),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "asked", "change"), STREAMS)
def test_faults_of_streams(invariant: str, asked: Any, change: Any) -> None:
    told = changed(chunks(stream(), usage=asked is USAGE), change)
    assert invariant in found(stream_exchange(told), asked)


WHOLE: list[tuple[str, bool, Any]] = [
    ("message-content", True, ""),
    ("message-content", False, None),
]


@pytest.mark.parametrize(("invariant", "calls", "content"), WHOLE)
def test_faults_of_messages(invariant: str, calls: bool, content: Any) -> None:
    told = changed(body(calls=calls), lambda made: made["choices"][0]["message"].update(content=content))
    assert invariant in found(whole_exchange(told), {"max_tokens": 64}, base="named_tool")


def test_fewer_tokens_than_sequences() -> None:
    few = changed(body(2), lambda made: made["usage"].update(completion_tokens=1, total_tokens=10))
    assert "completion-tokens" in found(whole_exchange(few), {"n": 2})


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("error-param", {"param": None}),
    ("error-param", {"param": "top_p"}),
    ("error-no-code", {"code": "bad_value"}),
    ("error-type", {"type": "server_error"}),
    ("refusal-names-field", {"message": "no"}),
    ("error-schema", {"message": 5}),
]


@pytest.mark.parametrize(("invariant", "particulars"), REFUSALS)
def test_faults_of_refusals(invariant: str, particulars: dict[str, Any]) -> None:
    assert invariant in found(refusal(**particulars), expect=refused(400))


def test_a_refusal_without_param_and_one_of_the_other_dialect() -> None:
    error = {"message": "top_k must be", "type": "invalid_request_error", "code": None}
    for told in ({"error": error}, {"error": "top_k must be", "error_type": "Input Validation Error"}):
        exchange = Exchange(SENT, 400, JSON_HEADERS, json.dumps(told).encode())
        assert "error-schema" in found(exchange, expect=refused(400))


def test_overload_says_when_to_try_again() -> None:
    told = refusal(429, type="rate_limit_error", param=None)
    assert found(told, expect=refused(429, None)) == {"retry-after"}


def _named(invariant: str, argument: Any, exchange: Exchange, **asked: Any) -> set[str]:
    expect = Expectation(kind=Kind.REFUSED, status=400, checks=(Check(invariant, argument),))
    return found(exchange, asked, expect=named(invariant, argument) if exchange.status == 200 else expect)


NAMED = ["code", "error-text", "num-calls", "one-token"]


def test_what_cases_name() -> None:
    assert _named("code", None, refusal()) == _named("error-text", "top_k", refusal()) == set()
    assert _named("code", "model_not_found", refusal()) == {"code"}
    assert _named("error-text", "best_of", refusal()) == {"error-text"}
    assert _named("num-calls", 0, whole_exchange(body())) == set()
    assert _named("num-calls", 1, whole_exchange(body())) == {"num-calls"}
    logprobs = {"logprobs": True, "top_logprobs": 2}
    assert _named("one-token", None, whole_exchange(body(logprobs=True)), **logprobs) == {"one-token"}
    same = changed(body(logprobs=True), _all_a)
    assert _named("one-token", None, whole_exchange(same), **logprobs) == set()


def _all_a(made: Any) -> None:
    choice = made["choices"][0]
    choice["message"]["content"] = "aa"
    choice["logprobs"]["content"] = [entry("a"), entry("a")]


def test_counts_are_not_asked_of_streams_without_usage() -> None:
    """Neither are they a fault of the suite."""
    plain = stream_exchange(chunks(stream()))
    for name, argument in (("tokens", 9), ("prompt-tokens", 99)):
        assert found(plain, STREAMED, expect=named(name, argument)) == set()
        told = stream_exchange(chunks(stream(), usage=True))
        assert found(told, USAGE, expect=named(name, argument)) == {name}


def test_every_invariant_of_the_dialect_is_proved() -> None:
    proved = {*(row[0] for row in STREAMS), *(row[0] for row in WHOLE), *(row[0] for row in REFUSALS), *NAMED}
    assert {rule.id for rule in INVARIANTS.values() if rule.dialects == ("openai",)} <= proved

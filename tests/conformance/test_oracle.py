"""The oracle: good answers pass, and each invariant finds the fault that it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from conformance.case import Expectation, Kind
from conformance.client import Exchange, Trouble
from conformance.oracle.registry import INVARIANTS
from conformance.oracle.shapes import names_field, names_place
from tests.conformance.exchanges import (
    CALL,
    STREAM_HEADERS,
    call_stream,
    changed,
    chunk,
    entry,
    findings,
    frames_of,
    named,
    refusal_exchange,
    refused,
    stream,
    stream_exchange,
    usage,
    whole,
    whole_exchange,
)

STREAMED = {"stream": True}
TWO = {"n": 2}
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
FAILED = Expectation(kind=Kind.FAILED)
FAILURE = {"error": "the engine failed", "error_type": "Incomplete Generation"}
HTTP = {"answer-complete": Trouble.BROKEN, "answer-in-time": Trouble.SLOW, "answer-size": Trouble.LARGE,
        "answer-not-encoded": Trouble.ENCODED}  # fmt: skip


def _found(*arguments: Any, **options: Any) -> set[str]:
    return {finding.invariant for finding in findings(*arguments, **options)}


def test_good_answers_pass() -> None:
    assert _found(whole_exchange(whole())) == set()
    assert _found(whole_exchange(whole(2)), TWO) == set()
    assert _found(whole_exchange(whole(logprobs=True)), LOGPROBS) == set()
    assert _found(whole_exchange(whole(calls=True)), {"max_tokens": 64}, base="named_tool") == set()
    assert _found(stream_exchange(stream()), STREAMED) == set()
    assert _found(stream_exchange(stream(2)), {**STREAMED, **TWO}) == set()
    assert _found(stream_exchange(stream(logprobs=True)), {**STREAMED, **LOGPROBS}) == set()
    assert _found(stream_exchange(call_stream()), {**STREAMED, "max_tokens": 64}, base="named_tool") == set()
    assert _found(refusal_exchange(422), expect=refused()) == set()
    assert _found(stream_exchange(frames_of([*stream()[:2], FAILURE], done=False)), STREAMED, expect=FAILED) == set()


def _choice(body: dict[str, Any]) -> dict[str, Any]:
    choice: dict[str, Any] = body["choices"][0]
    return choice


def _entries(body: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = _choice(body)["logprobs"]["content"]
    return entries


WHOLE = [
    ("body-known-keys", lambda body: body["usage"].update(more=1)),
    ("body-schema", lambda body: body.pop("usage")),
    ("body-schema", lambda body: body.update(usage=None)),
    ("body-key-order", lambda body: body.update(id=body.pop("id"))),
    ("body-key-order", lambda body: _choice(body).update(index=_choice(body).pop("index"))),
    ("body-model", lambda body: body.update(model="other")),
    ("body-indices", lambda body: _choice(body).update(index=1)),
    ("body-indices", lambda body: body["choices"].append({**_choice(body), "index": 1})),
    ("body-decode-times", lambda body: body.update(decode_time_arr=[5, 5])),
    ("body-created", lambda body: body.update(created=body["created"] * 1000)),
    ("body-whole-milliseconds", lambda body: body.update(prefill_time=20.5)),
    ("body-completion-tokens", lambda body: body["usage"].update(completion_tokens=1, total_tokens=10)),
    ("body-completion-tokens", lambda body: body.update(usage=usage(3), decode_time_arr=[5, 5])),
    ("body-full-text", lambda body: body.update(full_text="ab")),
    ("usage-total", lambda body: body["usage"].update(total_tokens=12)),
    ("usage-prompt", lambda body: body["usage"].update(prompt_tokens=0, total_tokens=2)),
    ("usage-cached", lambda body: body["usage"]["prompt_tokens_details"].update(cached_tokens=10)),
    ("usage-arrays", lambda body: body["usage"].update(queue_wait_time=[1])),
    ("usage-reasoning", lambda body: body["usage"].update(completion_tokens_details={"reasoning_tokens": 3})),
    ("finish-length", lambda body: body.update(usage=usage(1), decode_time_arr=[])),
    ("logprobs-presence", lambda body: _choice(body).update(logprobs={"content": [entry("a")]})),
    ("calls-only-with-tools", lambda body: _choice(body)["message"].update(tool_calls=[CALL])),
    ("calls-finish", lambda body: _choice(body).update(finish_reason="tool_calls")),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "change"), WHOLE)
def test_faults_of_whole_answers(invariant: str, change: Any) -> None:
    assert invariant in _found(whole_exchange(changed(whole(), change)))


SEVERAL = [
    ("sequence-order", lambda body: [one.update(logprob=-3.0) for one in _entries(body)]),
    ("logprobs-count", lambda body: _entries(body).pop()),
    ("logprobs-presence", lambda body: _choice(body).update(logprobs=None)),
    ("top-logprobs-count", lambda body: _entries(body)[0]["top_logprobs"].pop()),
    ("top-logprobs-order", lambda body: _entries(body)[0]["top_logprobs"].reverse()),
    ("logprobs-range", lambda body: _entries(body)[0].update(logprob=0.5)),
    ("logprobs-mass", lambda body: _entries(body)[0].update(top_logprobs=[{**entry("a"), "logprob": 0}] * 2)),
    ("logprobs-bytes", lambda body: _entries(body)[0].update(bytes=[99])),
    ("logprobs-text", lambda body: _entries(body)[0].update(token="x", bytes=[120])),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "change"), SEVERAL)
def test_faults_of_log_probabilities(invariant: str, change: Any) -> None:
    assert invariant in _found(whole_exchange(changed(whole(2, logprobs=True), change)), {**TWO, **LOGPROBS})


def test_the_likeliest_token_is_the_first_candidate() -> None:
    """Where no chance, search or penalty takes another one."""
    asked = {**LOGPROBS, "temperature": 0}
    wrong = changed(whole(logprobs=True), lambda body: _entries(body)[0].update(logprob=-2.5))
    assert "top-logprobs-taken" not in _found(whole_exchange(whole(logprobs=True)), asked)
    assert "top-logprobs-taken" in _found(whole_exchange(wrong), asked)
    for other in ({"temperature": 1}, {"use_beam_search": True}, {"presence_penalty": 1}):
        assert "top-logprobs-taken" not in _found(whole_exchange(wrong), {**asked, **other})


def test_no_log_probabilities_when_they_were_asked_for() -> None:
    assert "logprobs-presence" in _found(stream_exchange(stream()), {**STREAMED, **LOGPROBS})


STREAMS = [
    ("chunk-known-keys", lambda chunks: _choice(chunks[1])["delta"].update(refusal=None)),
    ("stream-created", lambda chunks: [one.update(created=one["created"] * 1000) for one in chunks]),
    ("chunk-schema", lambda chunks: chunks[1].update(object="chat.completion")),
    ("chunk-schema", lambda chunks: chunks.__setitem__(2, FAILURE)),
    ("chunk-key-order", lambda chunks: chunks[-1].update(usage=chunks[-1].pop("usage"))),
    ("stream-constants", lambda chunks: chunks[1].update(id="endpoint_common_1")),
    ("stream-constants", lambda chunks: chunks[1].update(created=2)),
    ("stream-model", lambda chunks: [one.update(model="other") for one in chunks]),
    ("chunk-role", lambda chunks: _choice(chunks[1])["delta"].pop("role")),
    ("chunk-one-choice", lambda chunks: chunks[1]["choices"].append(_choice(chunks[1]))),
    ("chunk-one-choice", lambda chunks: chunks[1].update(choices=[])),
    ("stream-indices", lambda chunks: _choice(chunks[1]).update(index=1)),
    ("one-finish", lambda chunks: chunks.append(chunks[-1])),
    ("one-finish", lambda chunks: chunks.append(chunks[1])),
    ("one-finish", lambda chunks: chunks.pop()),
    ("usage-with-finish", lambda chunks: chunks[1].update(usage=usage())),
    ("usage-with-finish", lambda chunks: chunks[-1].pop("usage")),
    ("opening-chunk", lambda chunks: chunks.pop(0)),
    ("opening-chunk", lambda chunks: _choice(chunks[0]).update(logprobs={"content": []})),
    ("no-empty-deltas", lambda chunks: chunks.insert(2, chunks[0])),
    ("full-text", lambda chunks: chunks[-1].update(full_text="ab")),
    ("stream-length", lambda chunks: chunks[-1].update(usage=usage(3))),
    ("stream-length", lambda chunks: chunks[-1]["usage"].update(batch_size=[1])),
    ("usage-total", lambda chunks: chunks[-1]["usage"].update(total_tokens=1)),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "change"), STREAMS)
def test_faults_of_streams(invariant: str, change: Any) -> None:
    assert invariant in _found(stream_exchange(changed(stream(), change)), STREAMED)


@pytest.mark.parametrize(
    ("text", "place", "is_named", "is_exact"),
    [
        ("n must be at least 1; got 0", "n", True, True),
        ("invalid input", "n", False, False),
        ("input.n is wrong", "n", True, False),
        ("role must be text", "messages[0].role", True, False),
        ("messages[0].role must be text", "messages[0].role", True, True),
        ("messages[0].roles", "messages[0].role", True, False),
        ("stop has a number in it", "stop[0]", True, False),
        ("the stopping text", "stop[0]", False, False),
        ("messages[0].content[0].type is odd", "messages[0].content[0]", True, True),
    ],
)
def test_a_name_is_a_word_of_its_own(text: str, place: str, is_named: bool, is_exact: bool) -> None:
    assert (names_field(text, place), names_place(text, place)) == (is_named, is_exact)


def test_two_sequences_under_one_index() -> None:
    chunks = changed(stream(2), lambda chunks: [_choice(one).update(index=0) for one in chunks])
    assert {"stream-indices", "one-finish"} <= _found(stream_exchange(chunks), {**STREAMED, **TWO})


def test_a_beam_in_pieces() -> None:
    chunks = [chunk(0, {"content": ""}), chunk(0, {"content": "a"}), chunk(0, {"content": "b"}, "length")]
    assert "beam-pseudo-stream" in _found(stream_exchange(chunks), {**STREAMED, "use_beam_search": True})


FRAMES = [
    ("frame-bytes", lambda raw: raw.replace(b"data: {", b"data:{", 1)),
    ("frame-bytes", lambda raw: raw.replace(b"\n\n", b"\r\n\r\n")),
    ("frame-bytes", lambda raw: raw + b"data: "),
    ("frame-bytes", lambda raw: b": hello\n\n" + raw),
    ("frame-bytes", lambda raw: raw.replace(b'"content":"a"', b'"content":"\xff"')),
    ("chunk-json", lambda raw: raw.replace(b"data: {", b"data: ", 1)),
    ("chunk-compact", lambda raw: raw.replace(b'"index":0', b'"index": 0', 1)),
    ("done-last", lambda raw: raw.removesuffix(b"data: [DONE]\n\n")),
    ("done-last", lambda raw: raw + b"data: [DONE]\n\n"),
    ("done-last", lambda raw: b"data: [DONE]\n\n" + raw.removesuffix(b"data: [DONE]\n\n")),
    ("chunk-schema", lambda raw: b"data: [DONE]\n\n"),
]


@pytest.mark.parametrize(("invariant", "change"), FRAMES)
def test_faults_of_frames(invariant: str, change: Any) -> None:
    assert invariant in _found(stream_exchange(change(frames_of(stream()))), STREAMED)


CALLS = [
    ("calls-known", lambda chunks: _call(chunks[1])["function"].update(name="other")),
    ("calls-arguments", lambda chunks: _call(chunks[2])["function"].update(arguments='{"city":')),
    ("call-deltas", lambda chunks: _call(chunks[2]).update(id="call_12345678")),
    ("call-deltas", lambda chunks: _call(chunks[1])["function"].update(arguments="{}")),
    ("calls-finish", lambda chunks: _choice(chunks[-1]).update(finish_reason="stop")),
]  # fmt: skip


def _call(one: dict[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = _choice(one)["delta"]["tool_calls"][0]
    return call


@pytest.mark.parametrize(("invariant", "change"), CALLS)
def test_faults_of_calls(invariant: str, change: Any) -> None:
    exchange = stream_exchange(changed(call_stream(), change))
    assert invariant in _found(exchange, {**STREAMED, "max_tokens": 64}, base="named_tool")


def test_two_calls_with_one_id() -> None:
    body = changed(whole(calls=True), lambda body: _choice(body)["message"]["tool_calls"].append(CALL))
    assert "calls-ids" in _found(whole_exchange(body), {"max_tokens": 64}, base="named_tool")


HEADERS = [
    ("body-content-type", whole_exchange(whole()), {}, {"content-type": "text/plain"}),
    ("stream-content-type", stream_exchange(stream()), STREAMED, {"content-type": "application/json"}),
    ("stream-headers", stream_exchange(stream()), STREAMED, {**STREAM_HEADERS, "cache-control": "public"}),
]


@pytest.mark.parametrize(("invariant", "exchange", "put", "headers"), HEADERS)
def test_faults_of_headers(invariant: str, exchange: Any, put: Any, headers: Any) -> None:
    assert invariant in _found(replace(exchange, headers=headers), put)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 5000, b"[1]", b"null", b'{"a": NaN}', b"9" * 5000], ids=lambda body: body[:4]
)
def test_what_is_no_answer_is_told_and_raises_nothing(body: bytes) -> None:
    assert _found(whole_exchange(body)) >= {"body-schema"}


def test_white_space_is_a_should() -> None:
    found = findings(whole_exchange(b" " + whole_exchange(whole()).body))
    assert [(finding.invariant, finding.level) for finding in found] == [("body-compact", "SHOULD")]


REFUSALS = [
    ("error-schema", refusal_exchange(422, "")),
    ("error-schema", replace(refusal_exchange(422), body=b"no")),
    ("error-type", refusal_exchange(422, error_type="Service Unavailable")),
    ("error-content-type", replace(refusal_exchange(422), headers={})),
    ("refusal-names-field", refusal_exchange(422, "bad request")),
    ("refusal-names-place", refusal_exchange(422, "bad request")),
    ("status", refusal_exchange(400, error_type="Bad Request")),
    ("status", whole_exchange(whole())),
]


@pytest.mark.parametrize(("invariant", "exchange"), REFUSALS)
def test_faults_of_refusals(invariant: str, exchange: Any) -> None:
    assert invariant in _found(exchange, expect=refused())


def test_a_refusal_may_name_the_field_without_the_whole_place() -> None:
    found = findings(refusal_exchange(422, "text: too short"), expect=refused(names="messages[0].content[0].text"))
    assert [(finding.invariant, finding.level) for finding in found] == [("refusal-names-place", "SHOULD")]


def test_503_says_when_to_come_back() -> None:
    exchange = refusal_exchange(503, error_type="Service Unavailable")
    assert _found(exchange, expect=refused(503, None)) == {"retry-after"}


def test_what_a_server_may_lack_it_may_refuse_by_name() -> None:
    expect = Expectation(kind=Kind.ANSWER, unless=("messages[0].content[0]",))
    assert _found(refusal_exchange(422, "messages[0].content[0].type: no media"), expect=expect) == set()
    assert "refusal-names-field" in _found(refusal_exchange(422, "no"), expect=expect)
    assert "status" in _found(refusal_exchange(500, "messages", "Incomplete Generation"), expect=expect)


@pytest.mark.parametrize("invariant", HTTP)
def test_trouble_is_a_fault_of_its_own(invariant: str) -> None:
    exchange = replace(whole_exchange(b"{"), trouble=HTTP[invariant], reason="it went on and on")
    assert _found(exchange) == {invariant}


@pytest.mark.parametrize(
    ("invariant", "events", "done"),
    [
        ("failure-last", [FAILURE], True),
        ("failure-last", [], False),
        ("failure-last", [FAILURE, chunk(0, {"content": "b"})], False),
        ("failure-last", [{**FAILURE, "error_type": "Bad Request"}], False),
        ("failure-no-finish", [chunk(0, {"content": ""}, "stop"), FAILURE], False),
    ],
)
def test_faults_of_streams_that_break_off(invariant: str, events: list[Any], done: bool) -> None:
    exchange = stream_exchange(frames_of([*stream()[:2], *events], done=done))
    assert invariant in _found(exchange, STREAMED, expect=FAILED)


MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x", "root": "m",
                                      "parent": None}]}  # fmt: skip
NAMED = [
    ("finish", "stop", whole()),
    ("text", "abc", whole()),
    ("text-without", "b", whole()),
    ("tokens", 3, whole()),
    ("prompt-tokens", 1000, whole()),
    ("usage-figures", {"cached_tokens": 1}, whole()),
    ("usage-figures", {"prefill_time": 21}, whole()),
    ("calls", "get_weather", whole()),
    ("reasoning", True, whole()),
    ("content-json", {"type": "object"}, changed(whole(), lambda body: _choice(body).update(finish_reason="stop"))),
    ("header", {"Allow": "POST"}, whole()),
    ("plane-schema", "ModelList", whole()),
    ("lists-model", None, {**MODELS, "data": [{**MODELS["data"][0], "parent": "m"}]}),  # type: ignore[dict-item]  # a list of objects
    ("lists-model", None, {**MODELS, "data": MODELS["data"] * 2}),  # type: ignore[operator]  # a list
    ("is-model", None, {"id": "other"}),
    ("body-contains", "ready", whole()),
    ("transcript", "single-turn", whole()),
    ("transcript-shape", "single-turn", changed(whole(), lambda body: body.pop("prefill_time"))),
]


@pytest.mark.parametrize(("invariant", "argument", "body"), NAMED)
def test_what_cases_name(invariant: str, argument: Any, body: Any) -> None:
    assert invariant in _found(whole_exchange(body), expect=named(invariant, argument))


def test_an_invariant_that_stumbles_over_a_good_answer_is_the_suites_fault() -> None:
    with pytest.raises(AttributeError):
        findings(whole_exchange(whole()), expect=named("usage-figures", 5))


def test_answers_to_one_question_are_compared_over_their_forms() -> None:
    same, other = stream_exchange(stream()), changed(whole(), lambda body: _choice(body)["message"].update(content="x"))
    assert _found(same, STREAMED, others=[_numbered(stream(), 1), _numbered(stream(), 2)]) == set()
    assert _found(same, STREAMED, others=[same]) == {"ids-differ"}
    longer = changed(stream(), lambda chunks: chunks[-1].update(usage=changed(usage(), _longer_prompt)))
    assert _found(same, STREAMED, others=[_numbered(longer, 1)]) == {"same-usage"}
    assert "same-answer" in _found(same, STREAMED, others=[stream_exchange(changed(stream(), _says_other))])
    assert "same-answer" in _found(whole_exchange(whole()), others=[whole_exchange(other)])


def test_one_more_medium_is_more_tokens() -> None:
    """Of a question with a medium, and of the same without it, which has 9 tokens."""
    with_more = changed(whole(), lambda body: body.update(usage=changed(body["usage"], _longer_prompt)))
    assert _found(whole_exchange(with_more), shorter=[whole_exchange(whole())]) == set()
    for told, other in ((whole(), whole()), (whole(), with_more)):
        assert _found(whole_exchange(told), shorter=[whole_exchange(other)]) == {"longer-prompt"}


def _numbered(chunks: list[Any], number: int) -> Exchange:
    return stream_exchange([{**one, "id": f"endpoint_common_{number}"} for one in chunks])


def _longer_prompt(figures: dict[str, Any]) -> None:
    figures.update(prompt_tokens=10, total_tokens=12)


def _says_other(chunks: list[Any]) -> None:
    _choice(chunks[1])["delta"]["content"] = "x"


def _proved() -> Iterator[str]:
    for table in (WHOLE, SEVERAL, STREAMS, FRAMES, CALLS, HEADERS, REFUSALS, NAMED):
        yield from (row[0] for row in table)
    yield from HTTP


def test_every_invariant_is_proved() -> None:
    elsewhere = {
        "calls-ids", "beam-pseudo-stream", "body-compact", "retry-after", "same-answer", "same-usage", "ids-differ",
        "failure-last", "failure-no-finish", "top-logprobs-taken", "another-answer", "longer-prompt",
        "error-text",
    }  # fmt: skip
    of_vllm = {rule.id for rule in INVARIANTS.values() if "vllm" in rule.dialects}  # the others: test_oracle_openai
    assert of_vllm == {*_proved(), *elsewhere}

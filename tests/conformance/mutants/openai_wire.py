"""Servers of the ``openai`` dialect that are wrong in one way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.conformance.mutants.faults import (
    Json,
    Mutant,
    accepting,
    compact,
    on_answer,
    on_chunks,
    on_completion,
    on_frames,
    on_request,
    status,
)
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question

NEGATIVE: Final = "request.temperature.below-minimum"
HEADER: Final = b"x-mindserve-dialect"

# ----------------------------------------------------------------------------------------------------------- answers


def _on_choices(change: Callable[[Json], object]) -> Fault:
    """Each choice of streams; the chunk with the usage has none."""

    def changed(chunks: list[Json]) -> None:
        for chunk in chunks:
            for choice in chunk.get("choices", ()):
                change(choice)

    return on_chunks(changed)


def _figures(chunks: list[Json]) -> Json:
    used = {
        "prompt_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens": 2,
        "total_tokens": 11,
    }
    return next((chunk["usage"] for chunk in chunks if chunk.get("usage")), used)


def _usage_everywhere(chunks: list[Json]) -> None:
    figures = _figures(chunks)
    for chunk in chunks:
        if "usage" in chunk:
            chunk["usage"] = figures


def _usage_unasked(chunks: list[Json]) -> list[Json]:
    has_it = any("usage" in chunk for chunk in chunks)
    return chunks if has_it else [*chunks, {**chunks[-1], "usage": _figures(chunks), "choices": []}]


def _usage_with_a_choice(chunks: list[Json]) -> None:
    if chunks[-1].get("usage"):
        chunks[-1]["choices"] = [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]


def _usage_with_the_finish(chunks: list[Json]) -> list[Json]:
    """As the document has it."""
    if not chunks[-1].get("usage"):
        return chunks
    *others, usage = chunks
    others[-1]["usage"] = usage["usage"]
    return others


def _usage_first(chunks: list[Json]) -> list[Json]:
    return [chunks[-1], *chunks[:-1]] if chunks[-1].get("usage") else chunks


def _usage_absent_elsewhere(chunks: list[Json]) -> None:
    for chunk in chunks:
        if chunk.get("usage", 0) is None:
            del chunk["usage"]


def _usage_of_one(chunks: list[Json]) -> None:
    if (usage := chunks[-1].get("usage")) and usage["completion_tokens"] > 1:
        usage.update(completion_tokens=1, total_tokens=usage["prompt_tokens"] + 1)


def _bare_finish(choice: Json) -> None:
    if choice["finish_reason"] is not None:
        choice["delta"].setdefault("content", "")


def _more_tokens(body: Json, fields: Json) -> None:
    usage = body["usage"]
    usage.update(completion_tokens=usage["completion_tokens"] + 100, total_tokens=usage["total_tokens"] + 100)


def _on_messages(change: Callable[[Json], object]) -> Fault:
    return on_completion(lambda body, fields: [change(choice["message"]) for choice in body["choices"]])


def _empty_content(message: Json) -> None:
    message["content"] = message["content"] or ""


def _no_calls(message: Json) -> None:
    message.setdefault("tool_calls", [])


def _told_times(body: Json, fields: Json) -> None:
    body.update(prefill_time=20, decode_time_arr=[])


def _full_text(chunks: list[Json]) -> None:
    for chunk in chunks:
        chunk["full_text"] = ""


def _ends_after_failure(frames: list[bytes]) -> list[bytes]:
    return frames if frames[-1] == b"data: [DONE]" else [*frames, b"data: [DONE]"]


def _flat_failure(frames: list[bytes]) -> list[bytes]:
    if b'"error"' not in frames[-1]:
        return frames
    message = json.loads(frames[-1].removeprefix(b"data: "))["error"]["message"]
    return [*frames[:-1], b"data: " + compact({"error": message, "error_type": "Incomplete Generation"})]


ANSWERS: Final = (
    Mutant("openai: a role in every chunk", _on_choices(lambda one: one["delta"].update(role="assistant")),
           "stream.plain", "role-once"),
    Mutant("openai: no role at all", _on_choices(lambda one: one["delta"].pop("role", None)),
           "stream.plain", "role-once"),
    Mutant("openai: usage in every chunk", on_chunks(_usage_everywhere), "openai.stream.usage", "usage-chunk"),
    Mutant("openai: usage that nobody asked for", on_chunks(_usage_unasked), "stream.plain", "usage-chunk"),
    Mutant("openai: a usage chunk with a choice", on_chunks(_usage_with_a_choice),
           "openai.stream.usage", "usage-chunk"),
    Mutant("openai: usage with the finish", on_chunks(_usage_with_the_finish), "openai.stream.usage", "usage-chunk"),
    Mutant("openai: usage first", on_chunks(_usage_first), "openai.stream.usage", "usage-chunk"),
    Mutant("openai: no usage key in other chunks", on_chunks(_usage_absent_elsewhere),
           "openai.stream.usage", "usage-null"),
    Mutant("openai: usage of one sequence", on_chunks(_usage_of_one), "openai.stream.usage.several", "same-usage"),
    Mutant("openai: empty content in a finishing delta", _on_choices(_bare_finish), "stream.plain", "finishing-delta"),
    Mutant("openai: more tokens than asked for", on_completion(_more_tokens), "whole.plain", "completion-tokens"),
    Mutant("openai: empty content beside calls", _on_messages(_empty_content),
           "openai.whole.calls-alone", "message-content"),
    Mutant("openai: an empty list of calls", _on_messages(_no_calls), "whole.plain", "body-schema"),
    Mutant("openai: no place for a refusal", _on_messages(lambda one: one.pop("refusal")),
           "whole.plain", "body-schema"),
    Mutant("openai: MindIE's times", on_completion(_told_times), "whole.plain", "body-known-keys"),
    Mutant("openai: full_text", on_chunks(_full_text), "stream.plain", "chunk-known-keys"),
    Mutant("openai: [DONE] after a failure", on_frames(_ends_after_failure), "openai.stream.failure", "failure-last"),
    Mutant("openai: a failure in MindIE's shape", on_frames(_flat_failure), "openai.stream.failure", "failure-last"),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------- refusals


def _on_errors(change: Callable[[Json], object], *statuses: int) -> Fault:
    """The particulars of refusals, in place."""

    def changed(question: Question, answer: Answer) -> Answer:
        if answer.status not in statuses:
            return answer
        body = json.loads(answer.body)
        change(body["error"])
        return answer.with_body(compact(body))

    return on_answer(changed)


def _with_status(told: int, other: int) -> Fault:
    return on_answer(lambda question, answer: status(other)(answer) if answer.status == told else answer)


def _flat(question: Question, answer: Answer) -> Answer:
    if answer.status != 400:
        return answer
    message = json.loads(answer.body)["error"]["message"]
    return answer.with_body(compact({"error": message, "error_type": "Input Validation Error"}))


def _renamed(error: Json) -> None:
    error["message"] = "the prompt is too long: " + error["param"]


def refusal(text: str, number: int = 400, kind: str = "invalid_request_error", param: str | None = None) -> Answer:
    body = compact({"error": {"message": text, "type": kind, "param": param, "code": None}})
    return Answer(number, [("content-type", "application/json"), ("content-length", str(len(body)))], body)


async def _overloaded(question: Question, forward: Forward) -> Answer:
    return refusal("there is no room for another request", 429, "rate_limit_error")


async def _overloaded_otherwise(question: Question, forward: Forward) -> Answer:
    return refusal("there is no room for another request", 429).with_header("retry-after", "9")


REFUSALS: Final = (
    Mutant("openai: 422 for a validation failure", _with_status(400, 422), NEGATIVE, "status"),
    Mutant("openai: 400 for an unknown model", _with_status(404, 400), "request.unknown-model", "status"),
    Mutant("openai: an unknown model without its code", _on_errors(lambda error: error.update(code=None), 404),
           "openai.error.unknown-model", "code"),
    Mutant("openai: errors without param", _on_errors(lambda error: error.pop("param"), 400),
           NEGATIVE, "error-schema"),
    Mutant("openai: errors with param null", _on_errors(lambda error: error.update(param=None), 400),
           NEGATIVE, "error-param"),
    Mutant("openai: errors with a code of their own", _on_errors(lambda error: error.update(code="bad"), 400),
           NEGATIVE, "error-no-code"),
    Mutant("openai: errors of another class", _on_errors(lambda error: error.update(type="server_error"), 400),
           NEGATIVE, "error-type"),
    Mutant("openai: errors of MindIE's shape", on_answer(_flat), NEGATIVE, "error-schema"),
    Mutant("openai: a long prompt without its code", _on_errors(lambda error: error.update(code=None), 400),
           "openai.error.longest", "code"),
    Mutant("openai: a long prompt without the context's length", _on_errors(_renamed, 400),
           "openai.error.longest", "error-text"),
    Mutant("openai: an engine's failure as the client's", _with_status(500, 400), "openai.error.engine", "status"),
    Mutant("openai: overload that does not say until when", _overloaded, "whole.plain", "retry-after"),
    Mutant("openai: overload of another class", _overloaded_otherwise, "whole.plain", "error-type"),
)  # fmt: skip

# ---------------------------------------------------------------------------------------------------------- requests


def _wrong(name: str, is_wrong: Callable[[Any], bool]) -> Fault:
    """A field is left out where it should have been refused."""
    return accepting(lambda fields: name in fields and is_wrong(fields[name]), **{name: None})


def _values(bias: Any) -> list[Any]:
    return list(bias.values()) if isinstance(bias, dict) else []


def _has_too_much(bias: Any) -> bool:
    return any(isinstance(one, float) and one > 100 for one in _values(bias))


def _keys(bias: Any) -> list[str]:
    return list(bias) if isinstance(bias, dict) else []


def _refusing(field: str, when: Callable[[Json], bool]) -> Fault:
    async def fault(question: Question, forward: Forward) -> Answer:
        fields = question.fields
        is_hit = fields is not None and when(fields)
        return refusal(f"{field} is refused", param=field) if is_hit else await forward(question)

    return fault


def _without(*names: str) -> Fault:
    return on_request(lambda fields: {key: value for key, value in fields.items() if key not in names})


def _is_greedy(fields: Json) -> bool:
    return fields.get("temperature") == 0 and isinstance(fields.get("n"), int) and fields["n"] > 1


REQUESTS: Final = (
    Mutant("openai: a bias above 100", _wrong("logit_bias", _has_too_much),
           "request.logit_bias.entry-above-maximum", "status"),
    Mutant("openai: 1,025 biases", _wrong("logit_bias", lambda bias: len(_keys(bias)) > 1024),
           "request.logit_bias.too-many-entries", "status"),
    Mutant("openai: 1,024 biases refused", _refusing("logit_bias", lambda f: len(_keys(f.get("logit_bias"))) == 1024),
           "request.logit_bias.most-entries", "status"),
    Mutant("openai: words as tokens", _wrong("logit_bias", lambda bias: any(not key.isdigit() for key in _keys(bias))),
           "rules.logit-bias-token.breaks", "status"),
    Mutant("openai: tokens with zeros in front", _wrong("logit_bias", lambda bias: "01" in _keys(bias)),
           "openai.logit_bias.key-with-zeros", "status"),
    Mutant("openai: tokens beyond the vocabulary", _wrong("logit_bias", lambda bias: "4294967295" in _keys(bias)),
           "openai.logit_bias.beyond-vocabulary", "status"),
    Mutant("openai: seventeen notes", _wrong("metadata", lambda notes: len(_keys(notes)) == 17),
           "request.metadata.too-many-entries", "status"),
    Mutant("openai: a note of 513 characters", _wrong("metadata", lambda notes: any(
        len(one) > 512 for one in _values(notes) if isinstance(one, str))),
           "request.metadata.entry-too-long", "status"),
    Mutant("openai: a number as user", _wrong("user", lambda user: isinstance(user, int)),
           "request.user.as-integer", "status"),
    Mutant("openai: text as store", _wrong("store", lambda store: isinstance(store, str)),
           "request.store.as-string", "status"),
    Mutant("openai: text as parallel_tool_calls", _wrong("parallel_tool_calls", lambda one: isinstance(one, str)),
           "request.parallel_tool_calls.as-string", "status"),
    Mutant("openai: user unknown and refused", _refusing("user", lambda fields: isinstance(fields.get("user"), str)),
           "openai.no-effect", "status"),
    Mutant("openai: tools with stop refused", _refusing("stop", lambda f: bool(f.get("tools") and f.get("stop"))),
           "openai.tools.stop", "status"),
    Mutant("openai: tools with n refused", _refusing("n", lambda f: bool(f.get("tools")) and f.get("n") == 2),
           "openai.tools.n", "status"),
    Mutant("openai: tools with logprobs refused",
           _refusing("logprobs", lambda f: bool(f.get("tools") and f.get("logprobs"))),
           "openai.tools.logprobs", "status"),
    Mutant("openai: several sequences need a temperature", _refusing("n", _is_greedy),
           "openai.several-greedy", "status"),
    Mutant("openai: as many calls as there are", _without("parallel_tool_calls"), "openai.calls.one", "num-calls"),
    Mutant("openai: include_usage ignored", _without("stream_options"), "openai.stream.usage", "usage-chunk"),
)  # fmt: skip

# ------------------------------------------------------------------------------------------------------------ header


async def _deaf(question: Question, forward: Forward) -> Answer:
    return await forward(replace(question, headers=[pair for pair in question.headers if pair[0] != HEADER]))


async def _keyless(question: Question, forward: Forward) -> Answer:
    """The good server here has no keys, so none has to be taken away."""
    return await forward(question)


def _heard(change: Callable[[bytes], bytes | None]) -> Fault:
    async def fault(question: Question, forward: Forward) -> Answer:
        told = [(name, change(value) if name == HEADER else value) for name, value in question.headers]
        return await forward(replace(question, headers=[(name, value) for name, value in told if value is not None]))

    return fault


HEADERS: Final = (
    Mutant("openai: the header is not heard", _deaf, "dialect.vllm", "body-schema"),
    Mutant("openai: unknown dialects are passed over",
           _heard(lambda value: value if value in (b"vllm", b"openai") else None),
           "dialect.unknown", "status"),
    Mutant("openai: dialects in capitals", _heard(lambda value: value.lower()), "dialect.upper-case", "status"),
    Mutant("openai: an empty header is none", _heard(lambda value: value or None), "dialect.empty", "status"),
    Mutant("openai: no key is asked for", _keyless,
           "errors.no-key", "status", features=frozenset({"api-key"})),
)  # fmt: skip

MUTANTS: Final = (*ANSWERS, *REFUSALS, *REQUESTS, *HEADERS)
"""In front of a scripted engine."""


def _of_bias(change: Callable[[float], float]) -> Fault:
    def changed(fields: Json) -> Json:
        bias = fields.get("logit_bias")
        return fields if not bias else {**fields, "logit_bias": {key: change(value) for key, value in bias.items()}}

    return on_request(changed)


COMPUTED: Final = (
    Mutant("openai: logit_bias ignored", _without("logit_bias"), "openai.logit_bias.rules-out", "another-answer"),
    Mutant("openai: a weak logit_bias", _of_bias(lambda bias: bias / 100), "openai.logit_bias.asks-for", "one-token"),
)
"""In front of an engine that computes."""

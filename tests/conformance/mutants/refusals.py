"""Servers whose refusals, or whose other paths, are wrong in one way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from tests.conformance.mutants.faults import Json, Mutant, compact, on_answer, on_refusal, refusal, status
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question


def _said(answer: Answer) -> Json:
    body: Json = json.loads(answer.body)
    return body


def _openai(answer: Answer) -> Answer:
    error = {"message": _said(answer)["error"], "type": "invalid_request_error", "param": None, "code": None}
    return answer.with_body(compact({"error": error}))


def _detail(answer: Answer) -> Answer:
    """As FastAPI writes it."""
    return answer.with_body(compact({"detail": [{"loc": ["body"], "msg": _said(answer)["error"], "type": "value"}]}))


def _nameless(answer: Answer) -> Answer:
    return answer.with_body(compact({**_said(answer), "error": "the request is not valid"}))


def _other_class(answer: Answer) -> Answer:
    return answer.with_body(compact({**_said(answer), "error_type": "Bad Request"}))


def _classless(answer: Answer) -> Answer:
    return answer.with_body(compact({"error": _said(answer)["error"]}))


def _plain(answer: Answer) -> Answer:
    return answer.with_body(_said(answer)["error"].encode()).with_header("content-type", "text/plain")


def _placeless(answer: Answer) -> Answer:
    """Only the field at the top is named."""
    text = re.sub(r"messages\[\d+\][\w.\[\]]*", "messages", _said(answer)["error"])
    return answer.with_body(compact({**_said(answer), "error": text}))


async def _overloaded(question: Question, forward: Forward) -> Answer:
    answer = refusal("there is no room for another request")
    body = compact({"error": "there is no room for another request", "error_type": "Service Unavailable"})
    return replace(answer, status=503).with_body(body)


async def _silent(question: Question, forward: Forward) -> Answer:
    """Nothing is said until the client leaves."""
    fields = question.fields
    asked = {**(fields or {}), "messages": [{"role": "user", "content": SILENCE}]}
    return await forward(question if fields is None else question.with_fields(asked))


SILENCE: Final = "[say nothing]"
"""The good server's reply to it is none at all."""


def _as_event(question: Question, answer: Answer) -> Answer:
    if answer.status != 422 or not (question.fields or {}).get("stream"):
        return answer
    events = b"data: " + answer.body + b"\n\ndata: [DONE]\n\n"
    return replace(answer, status=200).with_header("content-type", "text/event-stream").with_body(events)


def _of_kind(word: str, number: int) -> Fault:
    """Refusals whose text speaks of ``word`` have another status."""
    return on_refusal(lambda answer: replace(answer, status=number) if word in _said(answer)["error"] else answer)


async def _any_content_type(question: Question, forward: Forward) -> Answer:
    headers = [(name, b"application/json" if name == b"content-type" else value) for name, value in question.headers]
    return await forward(replace(question, headers=headers))


def _any_status(number: int, other: int) -> Fault:
    return on_answer(lambda question, answer: replace(answer, status=other) if answer.status == number else answer)


REFUSALS: Final = (
    Mutant(
        "errors that do not name the place", on_refusal(_placeless), "request.messages.role.null", "refusal-names-place"
    ),
    Mutant("overload that does not say until when", _overloaded, "whole.plain", "retry-after"),
    Mutant("no answer at all", _silent, "whole.plain", "answer-in-time", bounds={"request_timeout_s": 0.3}),
    Mutant("errors with status 200", on_refusal(status(200)), "request.temperature.below-minimum", "status"),
    Mutant("errors with status 400", on_refusal(status(400)), "request.temperature.below-minimum", "status"),
    Mutant("errors with status 500", on_refusal(status(500)), "request.temperature.below-minimum", "status"),
    Mutant(
        "errors that do not name the field",
        on_refusal(_nameless),
        "request.temperature.below-minimum",
        "refusal-names-field",
    ),
    # "n" occurs in every other word.
    Mutant("errors that do not name n", on_refusal(_nameless), "request.n.below-minimum", "refusal-names-field"),
    Mutant("errors of OpenAI's shape", on_refusal(_openai), "request.temperature.below-minimum", "error-schema"),
    Mutant("errors of FastAPI's shape", on_refusal(_detail), "request.temperature.below-minimum", "error-schema"),
    Mutant("errors of another class", on_refusal(_other_class), "request.temperature.below-minimum", "error-type"),
    Mutant("errors without a class", on_refusal(_classless), "request.temperature.below-minimum", "error-schema"),
    Mutant("errors in plain text", on_refusal(_plain), "request.temperature.below-minimum", "error-schema"),
    Mutant(
        "errors called plain text",
        on_refusal(lambda answer: answer.with_header("content-type", "text/plain")),
        "request.temperature.below-minimum",
        "error-content-type",
    ),
    Mutant("errors as events of a stream", on_answer(_as_event), "errors.before-headers", "status"),
    Mutant("broken JSON with status 400", _of_kind("JSON", 400), "errors.broken-json", "status"),
    Mutant("an unknown model with status 404", _of_kind("model", 404), "request.unknown-model", "status"),
    Mutant("any content type taken", _any_content_type, "errors.content-type", "status"),
    Mutant("a body too large with status 400", _any_status(413, 400), "errors.too-large", "status"),
    Mutant("a wrong method with status 404", _any_status(405, 404), "plane.unknown-method", "status"),
    Mutant(
        "no Allow beside 405",
        on_answer(lambda question, answer: answer.with_header("allow", None) if answer.status == 405 else answer),
        "plane.unknown-method",
        "header",
    ),
)

# ------------------------------------------------------------------------------------------------------- other paths


def _no_model(question: Question, answer: Answer) -> Answer:
    return answer.with_body(compact({**_said(answer), "data": []}))


def _models_of_another_kind(question: Question, answer: Answer) -> Answer:
    return answer.with_body(compact({**_said(answer), "object": "models"}))


async def _every_model(question: Question, forward: Forward) -> Answer:
    is_one = question.path.startswith("/v1/models/")
    return await forward(replace(question, path="/v1/models/m") if is_one else question)


def _well(question: Question, answer: Answer) -> Answer:
    return answer.with_header("content-type", "text/plain").with_body(b"OK")


async def _page_not_found(question: Question, forward: Forward) -> Answer:
    answer = await forward(question)
    if answer.status != 404:
        return answer
    return answer.with_header("content-type", "text/html").with_body(b"<h1>Not Found</h1>")


def _path_as_root(question: Question, answer: Answer) -> Answer:
    body = _said(answer)
    body["data"][0]["root"] = "/models/m"
    return answer.with_body(compact(body))


async def _another_model(question: Question, forward: Forward) -> Answer:
    answer = await forward(question)
    if answer.status != 200 or not question.path.startswith("/v1/models/"):
        return answer
    return answer.with_body(compact({**_said(answer), "id": "gpt-4"}))


def _another_contract(question: Question, answer: Answer) -> Answer:
    return answer.with_body(compact({"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {}}))


PATHS: Final = (
    Mutant("a model's path told", on_answer(_path_as_root, "/v1/models"), "plane.models", "lists-model"),
    Mutant("another model told of", _another_model, "plane.model", "is-model"),
    Mutant("another contract", on_answer(_another_contract, "/openapi.json"), "plane.contract", "body-contains"),
    Mutant("an empty list of models", on_answer(_no_model, "/v1/models"), "plane.models", "plane-schema"),
    Mutant(
        "a list of models of another kind",
        on_answer(_models_of_another_kind, "/v1/models"),
        "plane.models",
        "plane-schema",
    ),
    Mutant("every model known", _every_model, "plane.model.unknown", "status"),
    Mutant("health in plain text", on_answer(_well, "/v2/health/ready"), "plane.ready", "plane-schema"),
    Mutant(
        "never ready",
        on_answer(lambda question, answer: replace(answer, status=503), "/v2/health/ready"),
        "plane.ready",
        "status",
    ),
    Mutant("a page for what is not found", _page_not_found, "plane.unknown-path", "error-schema"),
    Mutant(
        "figures of another kind",
        on_answer(lambda question, answer: answer.with_header("content-type", "text/html"), "/metrics"),
        "plane.metrics",
        "header",
    ),
)

MUTANTS: Final = (*REFUSALS, *PATHS)

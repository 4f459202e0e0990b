"""What schemathesis generates, made to fit the served model, so that each body has the one property it was made for.

A body that is meant to be taken keeps the rules that JSON Schema cannot say and asks for nothing that the scripted
engine lacks. One that is meant to be refused names a served model, or else it would be refused for that alone.
"""

from __future__ import annotations

import copy
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from tests.random_requests import BEYOND_SCHEMA, LACKING, Verdict

MODEL: Final = "m"
DIALECT_VARIABLE: Final = "FUZZED_DIALECT"
"""Set in the process that runs schemathesis."""
_VIEWS: Final = Path(__file__).parents[3] / "src" / "mindserve" / "api" / "_generated"


def contract_of(dialect: str) -> Any:
    """The contract of one dialect, without the header that picks the other one."""
    document = json.loads((_VIEWS / f"openapi.{dialect}.json").read_text("utf-8"))
    for item in document["paths"].values():
        for operation in item.values():
            given = operation.get("parameters", [])
            operation["parameters"] = [one for one in given if one.get("$ref") != "#/components/parameters/Dialect"]
    return document


@cache
def _verdict() -> Verdict:
    contract = contract_of(os.environ.get(DIALECT_VARIABLE, "vllm"))
    schema = {"$ref": "#/components/schemas/ChatCompletionRequest", "components": contract["components"]}
    return Verdict(jsonschema_rs.Draft202012Validator(schema), (MODEL,))


def is_taken(body: Any) -> bool:
    return isinstance(body, dict) and _verdict().is_taken(body)


def with_served_model(body: Any) -> Any:
    """``body`` itself if its model is no name at all: then that is what is wrong with it."""
    if isinstance(body, dict) and isinstance(body.get("model"), str) and body["model"]:
        return {**body, "model": MODEL}
    return body


def fitted(body: Any) -> Any:
    """A valid body that this server takes, as like ``body`` as can be."""
    if not isinstance(body, dict):
        return body
    mended = with_served_model(copy.deepcopy(body))
    for message in mended["messages"]:
        _fit_message(message)
    if mended.get("logit_bias"):
        mended["logit_bias"] = {str(token): bias for token, bias in enumerate(mended["logit_bias"].values())}
    if any(lacks(mended) for lacks in LACKING):
        mended |= {"tool_choice": "none", "response_format": {"type": "text"}}
    if BEYOND_SCHEMA["tool-choice-unknown-tool"](mended):
        mended["tool_choice"] = None
    if any(BEYOND_SCHEMA[rule](mended) for rule in ("best-of-below-n", "best-of-differs-from-n-in-stream")):
        mended["best_of"] = mended.get("n") or 1
    return mended


def _fit_message(message: dict[str, Any]) -> None:
    if isinstance(message.get("content"), list):
        parts = [part for part in message["content"] if part["type"] == "text"]
        message["content"] = parts or "a picture"
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = _arguments(call["function"]["arguments"])


def _arguments(given: Any) -> Any:
    try:
        value = json.loads(given) if isinstance(given, str) and given else given
    except ValueError:
        return "{}"
    return given if given == "" or isinstance(value, dict) else "{}"


def streamed(body: Any) -> Any:
    """``body`` as a wish for a stream; itself if ``stream`` is what is wrong with it."""
    is_free = isinstance(body, dict) and isinstance(body.get("stream"), bool | None)
    return {**body, "stream": True} if is_free else body

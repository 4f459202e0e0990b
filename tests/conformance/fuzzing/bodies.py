"""What schemathesis generates, made to fit the served model, so that each body has the one property it was made for.

A body that is meant to be taken keeps the rules that JSON Schema cannot say and sends no media, which the scripted
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

from tests.random_requests import BEYOND_SCHEMA, Verdict

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
    for tool in mended.get("tools") or ():
        _fit_function(tool["function"])
    if mended.get("logit_bias"):
        mended["logit_bias"] = {str(token): bias for token, bias in enumerate(mended["logit_bias"].values())}
    if BEYOND_SCHEMA["tool-choice-unknown-tool"](mended):
        mended["tool_choice"]["function"]["name"] = mended["tools"][0]["function"]["name"]
    if any(BEYOND_SCHEMA[rule](mended) for rule in ("best-of-below-n", "best-of-differs-from-n-in-stream")):
        mended["best_of"] = mended.get("n") or 1
    return mended


def _fit_message(message: dict[str, Any]) -> None:
    if isinstance(message.get("content"), list):
        parts = [part for part in message["content"] if part["type"] == "text"]
        message["content"] = parts or "a picture"
    for call in message.get("tool_calls") or ():
        if "arguments" in call["function"]:
            call["function"]["arguments"] = _arguments(call["function"]["arguments"])


def _fit_function(function: dict[str, Any]) -> None:
    """Arguments are an object, so a schema that binds them is one of an object. A tool without any is strict unless it
    says something else: few of those that are generated are."""
    if not function.get("parameters") and function.get("strict") is None:
        function["strict"] = True
    if isinstance(function.get("parameters"), dict) and "type" in function["parameters"]:
        function["parameters"]["type"] = "object"


def _arguments(given: Any) -> Any:
    try:
        value = json.loads(given) if isinstance(given, str) and given else given
    except ValueError:
        return "{}"
    return given if given in ("", None) or isinstance(value, dict) else "{}"


def formed(body: Any) -> Any:
    """``body``, every third one as a wish for JSON if it says nothing of a form: few of those that are generated do."""
    is_free = isinstance(body, dict) and body.get("response_format") is None and not body.get("use_beam_search")
    return {**body, "response_format": {"type": "json_object"}} if is_free and len(body) % 3 == 0 else body


def streamed(body: Any) -> Any:
    """``body`` as a wish for a stream; itself if ``stream`` is what is wrong with it."""
    is_free = isinstance(body, dict) and isinstance(body.get("stream"), bool | None)
    return {**body, "stream": True} if is_free else body

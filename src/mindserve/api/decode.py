"""From the bytes of a request body to the generated model, strictly; every fault is named in the contract's words.

The typed ``data`` of the web framework is not used: it takes "1" for 1 and 1 for true. The order is: content type
(before the body is read), UTF-8, nesting, JSON, model.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.contract import chat_request_expectations
from mindserve.api.dialect import CONTENT_ENCODING
from mindserve.api.expectation import MISSING, Path, value_at
from mindserve.api.nesting import exceeds_depth
from mindserve.errors import RefusalKind, RequestRefused, field_path, shown

MAX_INTEGER_DIGITS: Final = 20
"""As many as 2^64-1 has, the largest bound of the contract; longer ones are refused, not expanded (1e999999999)."""

MAX_INTEGRAL_FLOATS: Final = 64
"""More than the model has integer fields."""

_REQUEST_DECODER: Final = msgspec.json.Decoder(ChatCompletionRequest)
_MEDIA_TYPE: Final = "application/json"
_AT: Final = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP: Final = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")


def decode_request(body: bytes, *, max_json_depth: int) -> ChatCompletionRequest:
    """The request, or ``RequestRefused`` that names the place, what is expected there and what came instead.

    An integral float is taken for an integer ("n": 2.0), exactly; the contract's JSON Schema says that it is one.
    """
    _check_text(body, max_json_depth)
    try:
        return _REQUEST_DECODER.decode(body)
    except msgspec.ValidationError as error:
        return _decode_leniently(body, error)
    except msgspec.DecodeError as error:
        raise RequestRefused(f"the request body is not valid JSON: {_json_fault(error, body)}") from error


def check_content_type(content_type: str | None) -> None:
    """Absent, or application/json in UTF-8. Raises ``RequestRefused`` (UNSUPPORTED_MEDIA_TYPE)."""
    if content_type is None:
        return
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = {part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")}
    if media_type != _MEDIA_TYPE or not charsets <= {"utf-8", "utf8"}:
        raise RequestRefused(
            f"Content-Type must be {_MEDIA_TYPE} in UTF-8, got {shown(content_type)}",
            field="Content-Type",
            kind=RefusalKind.UNSUPPORTED_MEDIA_TYPE,
        )


def check_content_encoding(content_encoding: str | None) -> None:
    """Absent, or identity: bodies are not compressed. Raises ``RequestRefused`` (UNSUPPORTED_MEDIA_TYPE)."""
    encodings = {part.strip().lower() for part in (content_encoding or "").split(",")}
    if not encodings <= {"", "identity"}:
        raise RequestRefused(
            f"{CONTENT_ENCODING} must be absent or identity: a request body is sent uncompressed,"
            f" got {shown(content_encoding)}",
            field=CONTENT_ENCODING,
            kind=RefusalKind.UNSUPPORTED_MEDIA_TYPE,
        )


def _check_text(body: bytes, max_json_depth: int) -> None:
    if not body.strip():
        raise RequestRefused("the request body is empty; it must be a JSON object")
    try:
        # The decoder skips what it does not know, encoding errors included.
        body.isascii() or body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(f"the request body is not valid UTF-8 at byte {error.start}") from error
    if exceeds_depth(body, max_json_depth):
        raise RequestRefused(
            f"the request body nests arrays and objects more than {max_json_depth} deep (setting maxJsonDepth)"
        )


def _json_fault(error: msgspec.DecodeError, body: bytes) -> str:
    text = str(error)
    if text != "Input data was truncated":
        return text.removeprefix("JSON is malformed: ")
    # The decoder's word for half of a surrogate pair too.
    return "it ends too early, or a \\u escape is not a whole character" if b"\\u" in body else "it ends too early"


def _exact_number(literal: str) -> Decimal:
    try:
        return Decimal(literal)
    except ArithmeticError:  # an exponent of 20 digits
        return Decimal("Infinity")


_EXACT_DECODER: Final = msgspec.json.Decoder(float_hook=_exact_number)


def _decode_leniently(body: bytes, error: msgspec.ValidationError) -> ChatCompletionRequest:
    """Turn integral floats into integers where the model says that it wants one, else explain ``error``.

    Only places that the model itself complained about are touched, so free-form maps keep their floats.
    """
    try:
        # What the typed decoder skipped is read here for the first time, and may be out of every range.
        exact = _EXACT_DECODER.decode(body)
        plain = msgspec.json.decode(body) if _wants_integer(error) else None
    except msgspec.DecodeError as untyped_error:
        if _wants_integer(error):
            error = untyped_error if isinstance(untyped_error, msgspec.ValidationError) else error
        raise _explained(error, MISSING) from error
    for _ in range(MAX_INTEGRAL_FLOATS):
        path = _path_of(error)
        integer = _as_integer(value_at(exact, path)) if path and _wants_integer(error) else None
        if integer is None:
            break
        parent: Any = value_at(plain, path[:-1])
        parent[path[-1]] = integer
        try:
            return msgspec.convert(plain, ChatCompletionRequest)
        except msgspec.ValidationError as next_error:
            error = next_error
    raise _explained(error, exact) from error


def _wants_integer(error: msgspec.ValidationError) -> bool:
    return str(error).startswith("Expected `int")


def _as_integer(value: object) -> int | None:
    if not isinstance(value, Decimal) or not value.is_finite() or value.adjusted() >= MAX_INTEGER_DIGITS:
        return None
    return int(value) if value == value.to_integral_value() else None


def _path_of(error: msgspec.ValidationError) -> Path:
    at = _AT.search(str(error))
    steps = _STEP.finditer(at["path"].partition("[...]")[0]) if at else ()  # [...]: a key of a free-form map
    return tuple(int(step["index"]) if step["index"] else step["key"] for step in steps)


def _explained(error: msgspec.ValidationError, body: object) -> RequestRefused:
    """``body`` is ``MISSING`` when it holds a number that nothing can represent."""
    path, reason = _path_of(error), _AT.sub("", str(error))
    missing = _MISSING_FIELD.match(reason)
    if missing:
        path = (*path, missing["name"])
        return RequestRefused(f"{field_path(path)} is required", field=field_path(path))
    if not path and body is MISSING:
        return RequestRefused(f"the request body is not valid JSON: {reason}")
    if not path:
        return RequestRefused(f"the request body must be a JSON object, got {shown(body)}")
    expected = chat_request_expectations().at(path, body)
    value = value_at(body, path)
    if expected is None or value is MISSING:
        wanted = reason if expected is None else f"must be {expected} ({reason})"
        return RequestRefused(f"{field_path(path)} {wanted}", field=field_path(path))
    return RequestRefused(f"{field_path(path)} must be {expected}, got {shown(value)}", field=field_path(path))

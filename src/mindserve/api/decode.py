"""From the bytes of a request body to the generated model, strictly; every fault is named in the contract's words.

The typed ``data`` of the web framework is not used: it takes "1" for 1 and 1 for true. The order is: content type
(before the body is read), UTF-8, depth and number of values, JSON, model.
"""

from __future__ import annotations

import codecs
from typing import Final

import msgspec

from mindserve.api._generated.constants import MAX_JSON_VALUES
from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.explain import explain
from mindserve.api.nesting import Excess, find_excess
from mindserve.api.request_model import RequestModel
from mindserve.errors import CONTENT_ENCODING, RefusalKind, RequestRefused, shown

_MEDIA_TYPE: Final = "application/json"
_PIECE_BYTES: Final = 1024 * 1024


def decode_request(body: bytes, requests: RequestModel, *, max_json_depth: int) -> ChatCompletionRequest:
    """The request, or ``RequestRefused`` that names the place, what is expected there and what came instead.

    An integral float is taken for an integer ("n": 2.0), exactly; the contract's JSON Schema says that it is one.
    """
    _check_text(body, max_json_depth)
    try:
        return requests.decoder.decode(body)
    except msgspec.ValidationError as error:
        return _decode_integral(body, requests, error)
    except msgspec.DecodeError as error:
        raise explain(error, body, requests) from error


def _decode_integral(body: bytes, requests: RequestModel, error: msgspec.ValidationError) -> ChatCompletionRequest:
    try:
        request = requests.integral.decode(body) if str(error).startswith("Expected `int") else None
    except msgspec.DecodeError as next_error:
        raise explain(next_error, body, requests) from next_error
    if request is None:
        raise explain(error, body, requests) from error
    return request


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
    _check_utf8(body)
    excess = find_excess(body, max_depth=max_json_depth, max_values=MAX_JSON_VALUES)
    if excess is Excess.DEPTH:
        raise RequestRefused(
            f"the request body nests arrays and objects more than {max_json_depth} deep (setting maxJsonDepth)"
        )
    if excess is Excess.VALUES:
        raise RequestRefused(f"the request body holds more than {MAX_JSON_VALUES} values")


def _check_utf8(body: bytes) -> None:
    """The decoder skips what it does not know, encoding errors included. In pieces: memory stays flat."""
    if body.isascii():
        return
    position = 0
    try:
        while position < len(body):
            end = position + _PIECE_BYTES
            _, num_bytes = codecs.utf_8_decode(body[position:end], "strict", end >= len(body))
            position += num_bytes
    except UnicodeDecodeError as error:
        raise RequestRefused(f"the request body is not valid UTF-8 at byte {position + error.start}") from error

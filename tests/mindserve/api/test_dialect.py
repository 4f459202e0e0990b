from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mindserve.api.dialect import dialect_named
from mindserve.api.dialect.parts import INTERNAL_ERROR_TEXT
from mindserve.config.settings import Dialect
from mindserve.errors import EngineFault, GenerationTimeout, RefusalKind, RequestRefused

VLLM = dialect_named(Dialect.VLLM)
OPENAI = dialect_named(Dialect.OPENAI)


def plain(body: msgspec.Struct) -> Any:
    return msgspec.to_builtins(body)


@pytest.mark.parametrize(
    ("kind", "status", "error_type", "openai_status", "openai_type", "code"),
    [
        (RefusalKind.VALIDATION, 422, "Input Validation Error", 400, "invalid_request_error", None),
        (RefusalKind.UNAUTHORIZED, 401, "Unauthorized", 401, "invalid_request_error", "invalid_api_key"),
        (RefusalKind.MODEL_NOT_FOUND, 422, "Input Validation Error", 404, "invalid_request_error", "model_not_found"),
        (
            RefusalKind.CONTEXT_LENGTH, 422, "Input Validation Error", 400, "invalid_request_error",
            "context_length_exceeded",
        ),
        (RefusalKind.OVERLOADED, 503, "Service Unavailable", 429, "rate_limit_error", "server_overloaded"),
        (RefusalKind.UNAVAILABLE, 503, "Service Unavailable", 503, "server_error", "service_unavailable"),
        (RefusalKind.TOO_LARGE, 413, "Request Entity Too Large", 413, "invalid_request_error", "request_too_large"),
        (
            RefusalKind.UNSUPPORTED_MEDIA_TYPE, 415, "Unsupported Media Type", 415, "invalid_request_error",
            "unsupported_media_type",
        ),
        (RefusalKind.MODEL_PATH_NOT_FOUND, 404, "NotFoundError", 404, "invalid_request_error", "model_not_found"),
        (RefusalKind.NOT_FOUND, 404, "NotFoundError", 404, "invalid_request_error", "not_found"),
        (RefusalKind.METHOD_NOT_ALLOWED, 405, "Method Not Allowed", 405, "invalid_request_error", "method_not_allowed"),
    ],
)  # fmt: skip
def test_refusals(
    kind: RefusalKind, status: int, error_type: str, openai_status: int, openai_type: str, code: str | None
) -> None:
    refused = RequestRefused("n must be 1", field="n", kind=kind, retry_after_s=3)
    flat, nested = VLLM.error(refused), OPENAI.error(refused)
    assert (flat.status, plain(flat.body)) == (status, {"error": "n must be 1", "error_type": error_type})
    assert nested.status == openai_status
    assert plain(nested.body) == {"error": {"message": "n must be 1", "type": openai_type, "param": "n", "code": code}}
    if kind is RefusalKind.UNAUTHORIZED:
        assert flat.headers == nested.headers == {"WWW-Authenticate": "Bearer"}
        return
    wanted = {"Connection": "close"} if kind is RefusalKind.TOO_LARGE else {"Retry-After": "3"}
    assert flat.headers == nested.headers == wanted


def test_every_kind_has_a_status_in_both_dialects() -> None:
    for kind in RefusalKind:
        refused = RequestRefused("x", kind=kind)
        assert 400 <= VLLM.error(refused).status < 600
        assert 400 <= OPENAI.error(refused).status < 600


def test_the_class_of_an_error_is_the_one_that_the_contract_gives_its_status() -> None:
    contract = yaml.safe_load((Path(__file__).parents[3] / "spec" / "openapi.yaml").read_text("utf-8"))
    field = contract["components"]["schemas"]["ErrorBody"]["properties"]["error_type"]
    classes = dict(zip(field["x-statuses"], field["enum"], strict=True))
    errors = [VLLM.error(RequestRefused("x", kind=kind)) for kind in RefusalKind] + [VLLM.error(EngineFault("broken"))]
    assert {error.status: plain(error.body)["error_type"] for error in errors} == classes


@pytest.mark.parametrize("fault", [EngineFault("broken"), GenerationTimeout(setting="tokenTimeout", limit_s=1.5)])
def test_faults(fault: EngineFault) -> None:
    flat, nested = VLLM.error(fault), OPENAI.error(fault)
    assert (flat.status, nested.status) == (500, 500)
    assert plain(flat.body) == {"error": str(fault), "error_type": "Incomplete Generation"}
    assert plain(nested.body) == {"error": {"message": str(fault), "type": "server_error", "param": None, "code": None}}
    assert VLLM.stream_error(fault) == flat.body
    assert OPENAI.stream_error(fault) == nested.body


def test_the_text_of_a_bug_stays_in_the_log() -> None:
    for dialect in (VLLM, OPENAI):
        body = msgspec.json.encode(dialect.error(KeyError("/secret/path")).body).decode()
        assert "secret" not in body
        assert INTERNAL_ERROR_TEXT in body

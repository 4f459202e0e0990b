"""The contract as the running server carries it: the generated copies of ``spec/openapi.yaml``."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from mindserve.api.expectation import Expectations

_PACKAGE = "mindserve.api._generated"


@cache
def openapi_yaml() -> bytes:
    """The document as it stands in the source."""
    return (files(_PACKAGE) / "openapi.yaml").read_bytes()


@cache
def openapi_json() -> bytes:
    """The same content as JSON."""
    return (files(_PACKAGE) / "openapi.json").read_bytes()


@cache
def chat_request_expectations() -> Expectations:
    """Built when the first malformed request comes."""
    return Expectations(json.loads(openapi_json()), "ChatCompletionRequest")

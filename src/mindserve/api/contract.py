"""The contract as the running server carries it: the generated copy and views of ``spec/openapi.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mindserve.config.settings import Dialect

_PACKAGE = "mindserve.api._generated"


@cache
def openapi_yaml() -> bytes:
    """The document as it stands in the source."""
    return (files(_PACKAGE) / "openapi.yaml").read_bytes()


@cache
def openapi_json(dialect: Dialect) -> bytes:
    """What of it holds in one dialect, as JSON."""
    return (files(_PACKAGE) / f"openapi.{dialect.value}.json").read_bytes()

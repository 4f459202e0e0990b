"""``GET /openapi.yaml`` and ``/openapi.json``: the contract, served by what keeps it."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State

from mindserve.api.contract import openapi_yaml
from mindserve.api.dialect import DIALECT_HEADER
from mindserve.api.server import dialect_of


@get("/openapi.yaml", sync_to_thread=False)
def get_spec_yaml() -> Response[bytes]:
    """The document as it stands in the source, with both dialects."""
    return Response(openapi_yaml(), media_type="application/yaml")


@get("/openapi.json")
async def get_spec_json(request: Request[Any, Any, State]) -> Response[bytes]:
    """What of it holds in the request's dialect."""
    document = dialect_of(request).requests.document
    return Response(document, media_type="application/json", headers={"Vary": DIALECT_HEADER})

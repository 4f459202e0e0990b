"""``GET /openapi.yaml`` and ``/openapi.json``: the contract, served by what keeps it."""

from __future__ import annotations

from litestar import Response, get

from mindserve.api.contract import openapi_json, openapi_yaml


@get("/openapi.yaml", sync_to_thread=False)
def get_spec_yaml() -> Response[bytes]:
    """The document as it stands in the source."""
    return Response(openapi_yaml(), media_type="application/yaml")


@get("/openapi.json", sync_to_thread=False)
def get_spec_json() -> Response[bytes]:
    """The same content as JSON."""
    return Response(openapi_json(), media_type="application/json")

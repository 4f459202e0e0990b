"""``GET /v1/models`` and ``GET /v1/models/{model}``."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, get
from litestar.datastructures import State
from litestar.params import Parameter
from msgspec import UNSET

from mindserve.api._generated.models import Model, ModelList
from mindserve.api.api_keys import require_api_key
from mindserve.api.server import Server, require_known_dialect, server_of
from mindserve.errors import RefusalKind, RequestRefused, shown
from mindserve_engine.types import EngineState

OWNER: Final = "mindserve"


@get("/v1/models", guards=[require_api_key, require_known_dialect])
async def list_models(request: Request[Any, Any, State]) -> ModelList:
    """The base model, then its adapters."""
    server = server_of(request)
    names = (server.settings.model_name, *server.settings.lora_names)
    return ModelList(object="list", data=[_model(name, server) for name in names])


@get("/v1/models/{model:path}", guards=[require_api_key, require_known_dialect])
async def get_model(request: Request[Any, Any, State], model: str = Parameter()) -> Model:
    """One of the served models; its name may have slashes in it. Raises ``RequestRefused`` (MODEL_PATH_NOT_FOUND)."""
    server = server_of(request)
    model = model.removeprefix("/")  # the framework's paths begin with one
    if model not in (server.settings.model_name, *server.settings.lora_names):
        text = f"there is no model {shown(model)} here"
        raise RequestRefused(text, field="model", kind=RefusalKind.MODEL_PATH_NOT_FOUND)
    return _model(model, server)


def _model(name: str, server: Server) -> Model:
    base = server.settings.model_name
    is_loaded = server.engine.health().state in (EngineState.READY, EngineState.RESTARTING)
    return Model(
        id=name,
        object="model",
        created=server.started_at,
        owned_by=OWNER,
        root=base,
        parent=None if name == base else base,
        max_model_len=server.engine.info.max_context if is_loaded else UNSET,
    )

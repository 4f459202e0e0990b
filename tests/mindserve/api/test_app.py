from __future__ import annotations

from pathlib import Path

from mindserve.api._generated.operations import OPERATIONS
from mindserve.api.app import create_app
from mindserve.api.contract import openapi_json, openapi_yaml
from mindserve.api.edge import normal_path
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import scripted_model

SPEC = Path(__file__).parents[3] / "spec" / "openapi.yaml"


async def test_routes_are_the_contract_s_operations(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, [{"default": True, "pieces": ["x"]}])
    app = create_app(engine=model.engine, tokenizer=model.tokenizer, settings=ServeSettings())
    routes = {
        (method, route.path.replace(":path", "")) for route in app.routes for method in route.methods - {"OPTIONS"}
    }
    assert routes == {(operation.method, operation.path) for operation in OPERATIONS.values()}


def test_the_served_contract_is_the_source() -> None:
    assert openapi_yaml() == SPEC.read_bytes()
    for dialect in Dialect:
        assert openapi_json(dialect).startswith(b'{"openapi"')


def test_normal_path() -> None:
    for path in ("/v1/models", "/v1//models", "//v1/models/", "/v1/models//"):
        assert normal_path(path) == "/v1/models"
    assert normal_path("/") == "/"
    assert normal_path("//") == "/"

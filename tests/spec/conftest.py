"""The contract as data, and validators for its components that know nothing of generated models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

SPEC = Path(__file__).parents[2] / "spec"


@pytest.fixture(scope="session")
def spec_path() -> Path:
    return SPEC


@pytest.fixture(scope="session")
def contract() -> dict[str, Any]:
    return yaml.safe_load((SPEC / "openapi.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def schemas(contract: dict[str, Any]) -> dict[str, Any]:
    return contract["components"]["schemas"]


@pytest.fixture(scope="session")
def validators(contract: dict[str, Any]) -> dict[str, jsonschema_rs.Draft202012Validator]:
    """Component name -> validator."""
    components = contract["components"]
    return {
        name: jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})
        for name in components["schemas"]
    }


@pytest.fixture(scope="session")
def request_validator(validators: dict[str, jsonschema_rs.Draft202012Validator]) -> jsonschema_rs.Draft202012Validator:
    return validators["ChatCompletionRequest"]

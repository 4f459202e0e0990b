"""What wins over the file: the command line, then the environment variables MindIE has for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mindserve.config._generated import Config, ModelConfig
from mindserve.config.packaged import packaged_model

CONTAINER_IP: Final = "MIES_CONTAINER_IP"
MANAGEMENT_IP: Final = "MIES_CONTAINER_MANAGEMENT_IP"


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Values given on the command line; ``None`` leaves the file's."""

    model: Path | None = None
    model_name: str | None = None
    engine: str | None = None
    dtype: str | None = None
    device: str | None = None
    host: str | None = None
    port: int | None = None
    api_key_file: Path | None = None
    browser_pages: bool | None = None


def apply_overrides(config: Config, overrides: Overrides, environ: Mapping[str, str]) -> Config:
    """A config with exactly one ``ModelConfig``, in which the model given on the command line and the variables'
    addresses stand. Call ``apply_typed`` when its rules have been checked."""
    server = config.server_config.model_copy(update=_variables(environ))
    return _with_model(config, _model_values(overrides)).model_copy(update={"server_config": server})


def apply_typed(config: Config, overrides: Overrides) -> Config:
    """The typed address and name put in, unchecked: whoever types ``--port 443`` or ``--host 0.0.0.0`` means it."""
    given: dict[str, Any] = {
        "ip_address": overrides.host,
        "port": overrides.port,
        "api_key_file": None if overrides.api_key_file is None else str(overrides.api_key_file.absolute()),
        "browser_pages": overrides.browser_pages,
    }
    server = config.server_config.model_copy(update={name: value for name, value in given.items() if value is not None})
    named = config if overrides.model_name is None else _with_model(config, {"model_name": overrides.model_name})
    return named.model_copy(update={"server_config": server})


def the_model(config: Config) -> ModelConfig:
    """The one model of a config that ``apply_overrides`` made."""
    return config.backend_config.model_deploy_config.model_config_[0]


def _with_model(config: Config, values: dict[str, Any]) -> Config:
    deploy = config.backend_config.model_deploy_config
    models = deploy.model_config_ or [ModelConfig()]
    deploy = deploy.model_copy(update={"model_config_": [models[0].model_copy(update=values)]})
    backend = config.backend_config.model_copy(update={"model_deploy_config": deploy})
    return config.model_copy(update={"backend_config": backend})


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    given = {"ip_address": environ.get(CONTAINER_IP), "management_ip_address": environ.get(MANAGEMENT_IP)}
    return {name: value for name, value in given.items() if value}


def _model_values(overrides: Overrides) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model_weight_path": None if overrides.model is None else _typed_place(overrides.model),
        "backend_type": overrides.engine,
        "dtype": overrides.dtype,
        "device": overrides.device,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if overrides.model is not None:
        values["model_name"] = None  # the file's name belongs to the file's model
    return values


def _typed_place(model: Path) -> str:
    """A typed path starts where the command was given, wherever the config lies."""
    return str(model) if packaged_model(str(model), Path.cwd()) is not None else str(model.absolute())

"""No key of config.json says that it has a meaning and then changes nothing."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from mindserve.cli.engine_options import choose_engine
from mindserve.cli.node import patience_s
from mindserve.config.faults import ConfigInvalid
from mindserve.config.listen import listen_addresses
from mindserve.config.load import load_config
from mindserve.config.lower import log_settings, serve_settings
from mindserve.config.overrides import Overrides

SCHEMA: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "spec" / "config.schema.yaml").read_text("utf-8"))
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)

_DEPLOY = ("BackendConfig", "ModelDeployConfig")
SECTIONS: dict[str, tuple[str | int, ...]] = {
    "LogConfig": ("LogConfig",),
    "ServerConfig": ("ServerConfig",),
    "BackendConfig": ("BackendConfig",),
    "ModelDeployConfig": _DEPLOY,
    "LoraModule": (*_DEPLOY, "LoraModules", 0),
    "ModelConfig": (*_DEPLOY, "ModelConfig", 0),
    "ModelTypeConfig": (*_DEPLOY, "ModelConfig", 0, "models", "llama"),
    "ToolCallOptions": (*_DEPLOY, "ModelConfig", 0, "models", "llama", "tool_call_options"),
    "ScheduleConfig": ("BackendConfig", "ScheduleConfig"),
    "VllmConfig": ("BackendConfig", "VllmConfig"),
}
"""Where each object of the schema stands in the file."""

VALUES: dict[str, Any] = {
    "ipAddress": "127.0.0.9",
    "managementIpAddress": "127.0.0.9",
    "cacheBlockSize": 16,
    "npuDeviceIds": [[1]],
    "npuMemSize": 9,
    "backendType": "scripted",
    "plugin_params": "no object",
    "apiKeyFile": "no-such-file",
    "corsAllowOrigins": ["https://chat.example.org"],
    "LoraModules": [],
    "ModelConfig": [],
    "models": {},
    "nodes": ["10.0.0.1", "10.0.0.2"],
    "engineArgs": {"enforce_eager": True},
    "dp": 2,
    "tp": 2,
}
"""Other valid values than those of the full config, where the schema alone does not give one."""

VLLM_ONLY = {
    "VllmConfig": None,
    "ModelDeployConfig": {"maxLoras", "maxLoraRank"},
    "BackendConfig": {"multiNodesInferPort"},
}
"""Keys whose meaning is one of the vllm engine, by their object; None: all."""


def _keys() -> Iterator[tuple[str, str]]:
    for section in SECTIONS:
        for key, schema in SCHEMA["$defs"][section]["properties"].items():
            if not schema.get("x-ignored") and "$ref" not in schema:
                yield section, key


def _another(key: str, schema: dict[str, Any], value: Any) -> object:
    if key in VALUES:
        return VALUES[key]
    if "enum" in schema:
        return next((other for other in schema["enum"] if other.lower() != value.lower()), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, "another"]
    return f"{value}-another" if isinstance(value, str) else (value or 8) + 1


@pytest.fixture
def content(full_mindie: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """A config in which every key matters: TLS on three planes, an address that needs permission, a device."""
    full_mindie["BackendConfig"]["npuDeviceIds"] = [[0]]
    full_mindie["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0] |= {"worldSize": 1, "device": "npu"}
    server = full_mindie["ServerConfig"]
    server |= {"httpsEnabled": True, "ipAddress": "0.0.0.0", "allowAllZeroIpListening": True}
    for prefix in ("tls", "managementTls", "metricsTls"):
        folders = {"CaFile": server[f"{prefix}CaPath"], "CrlFiles": server[f"{prefix}CrlPath"]}
        files = [server[f"{prefix}Cert"], server[f"{prefix}Pk"]]
        files += [f"{folder}/{name}" for key, folder in folders.items() for name in server[f"{prefix}{key}"]]
        for name in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
    return full_mindie


def _outcome(folder: Path, content: dict[str, Any]) -> object:
    """All that comes of a config: its faults, or what the server, the engine, the sockets, the log and a further
    machine's watch are made of."""
    path = folder / "config.json"
    path.write_text(json.dumps(content), "utf-8")
    try:
        loaded = load_config(path, Overrides(), {})
    except ConfigInvalid as error:
        return error.faults
    sockets = listen_addresses(loaded.config, loaded.base)
    engine = choose_engine(loaded, Path("weights"))
    return sockets, serve_settings(loaded), engine, log_settings(loaded, None), patience_s(loaded)


def _run_on_two_machines(content: dict[str, Any]) -> None:
    backend = content["BackendConfig"]
    backend |= {"multiNodesInferEnabled": True, "VllmConfig": {"nodes": ["10.0.0.1", "10.0.0.9"]}}
    backend["ModelDeployConfig"]["ModelConfig"][0] |= {"backendType": "vllm", "worldSize": 2, "tp": 2, "dp": 1}


@pytest.mark.parametrize(("section", "key"), list(_keys()))
def test_a_key_with_a_meaning_changes_something(
    content: dict[str, Any], tmp_path: Path, section: str, key: str
) -> None:
    schema = SCHEMA["$defs"][section]["properties"][key]
    if section in VLLM_ONLY and ((keys := VLLM_ONLY[section]) is None or key in keys):
        _run_on_two_machines(content)
    if key == "onEngineFailure":  # of several machines the server ends in any case
        content["BackendConfig"] |= {"multiNodesInferEnabled": False, "VllmConfig": {}}
    changed = copy.deepcopy(content)
    place: Any = changed
    for step in SECTIONS[section]:
        place = place[step]
    place[key] = _another(key, schema, place.get(key, schema.get("default")))
    only_value = len(schema.get("enum", (1, 2))) == 1
    assert VALIDATOR.is_valid(changed) is not only_value, "the value proves nothing"
    before = _outcome(tmp_path, content)
    assert isinstance(before, tuple)
    assert len(before) == 5, before
    assert _outcome(tmp_path, changed) != before

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve.config.schema_check import check_schema

SCHEMA: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[3] / "spec" / "config.schema.yaml").read_text("utf-8"),
)
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)


def faults(raw: dict[str, object]) -> dict[str, str]:
    return {fault.path: fault.problem for fault in check_schema(raw).faults}


def test_an_empty_object_is_a_config() -> None:
    checked = check_schema({})
    assert checked.faults == ()
    assert checked.config.server_config.port == 1025


@pytest.mark.parametrize(
    ("raw", "path", "problem"),
    [
        ({"ServerConfig": {"port": 80}}, "ServerConfig.port", "80 is below the minimum 1024"),
        ({"ServerConfig": {"port": 65536}}, "ServerConfig.port", "65536 is above the maximum 65535"),
        ({"ServerConfig": {"port": "1025"}}, "ServerConfig.port", '"1025" is not an integer'),
        ({"ServerConfig": {"port": True}}, "ServerConfig.port", "true is not an integer"),
        ({"ServerConfig": {"port": 1025.0}}, "ServerConfig.port", "1025.0 is not an integer"),
        ({"ServerConfig": {"port": [1]}}, "ServerConfig.port", "a list of 1 item is not an integer"),
        (
            {"ServerConfig": {"port": None}},
            "ServerConfig.port",
            "null is not an integer: leave the key out for the default",
        ),
        ({"ServerConfig": {"httpsEnabled": 1}}, "ServerConfig.httpsEnabled", "1 is not true or false"),
        ({"ServerConfig": {"openAiSupport": False}}, "ServerConfig.openAiSupport", "false is not a string"),
        ({"ServerConfig": {"tlsCaFile": "ca.pem"}}, "ServerConfig.tlsCaFile", '"ca.pem" is not a list'),
        ({"ServerConfig": {"tlsCaFile": ["a", 5]}}, "ServerConfig.tlsCaFile[1]", "5 is not a string"),
        (
            {"ServerConfig": {"tlsCaFile": ["a", "b", "c", "d"]}},
            "ServerConfig.tlsCaFile",
            "has 4 items, the maximum is 3",
        ),
        ({"ServerConfig": {"inferMode": "dmi"}}, "ServerConfig.inferMode", '"dmi" is not "standard"'),
        ({"ServerConfig": []}, "ServerConfig", "a list of 0 items is not an object"),
        (
            {"BackendConfig": {"ScheduleConfig": {"cacheBlockSize": 100}}},
            "BackendConfig.ScheduleConfig.cacheBlockSize",
            "100 is not a multiple of 16",
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": "-x"}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelName",
            '"-x" does not match ^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$',
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": ""}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelName",
            '"" has 0 characters, the minimum is 1',
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": "a" * 257}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelName",
            '"' + "a" * 63 + "… has 257 characters, the maximum is 256",
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"backendType": "cuda"}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].backendType",
            '"cuda" is not one of "atb", "torch", "ms", "native", "vllm" or "scripted"',
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"modelName": "\ud800"}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].modelName",
            '"\ud800" has half a character in it (a lone surrogate)',
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"LoraModules": [{"name": "a"}]}}},
            "BackendConfig.ModelDeployConfig.LoraModules[0].path",
            "is mandatory",
        ),
    ],
)
def test_a_fault_names_its_place_the_bound_and_the_value(raw: dict[str, object], path: str, problem: str) -> None:
    assert faults(raw) == {path: problem}


def test_all_faults_are_told_even_those_behind_another() -> None:
    """Pydantic looks no further into a list that is too long."""
    raw: dict[str, object] = {
        "LogConfig": 3,
        "ServerConfig": {"port": 80, "maxLinkNum": 0, "ipAddress": None},
        "BackendConfig": {
            "tokenizerProcessNumber": 33,
            "ModelDeployConfig": {
                "maxSeqLen": 1,
                "ModelConfig": [{"npuMemSize": -2}, {"modelName": "other"}],
                "LoraModules": [{"name": 5}, {"path": 6}],
            },
        },
    }
    deploy = "BackendConfig.ModelDeployConfig"
    assert set(faults(raw)) == {
        "LogConfig",
        "ServerConfig.port",
        "ServerConfig.maxLinkNum",
        "ServerConfig.ipAddress",
        "BackendConfig.tokenizerProcessNumber",
        f"{deploy}.maxSeqLen",
        f"{deploy}.ModelConfig",
        f"{deploy}.ModelConfig[0].npuMemSize",
        f"{deploy}.LoraModules[0].name",
        f"{deploy}.LoraModules[0].path",
        f"{deploy}.LoraModules[1].name",
        f"{deploy}.LoraModules[1].path",
    }


def test_a_long_value_is_shortened() -> None:
    (problem,) = faults({"ServerConfig": {"port": "9" * 500}}).values()
    assert len(problem) < 120


def test_the_file_is_not_changed_by_checking() -> None:
    raw: dict[str, object] = {"ServerConfig": {"port": 80}}
    check_schema(raw)
    assert raw == {"ServerConfig": {"port": 80}}


def test_every_key_is_described_and_every_default_is_valid() -> None:
    assert check_schema({}).faults == ()
    for definition in (SCHEMA, *SCHEMA["$defs"].values()):
        for key, schema in definition["properties"].items():
            assert "description" in schema or "$ref" in schema, key
            assert "default" in schema or schema.get("x-ignored") or key in definition.get("required", ()), key
            if "default" in schema:
                jsonschema_rs.validate({**schema, "$defs": SCHEMA["$defs"]}, schema["default"])


_SECTIONS: dict[str, tuple[str, ...]] = {
    "": (),
    "LogConfig": ("LogConfig",),
    "ServerConfig": ("ServerConfig",),
    "BackendConfig": ("BackendConfig",),
    "ModelDeployConfig": ("BackendConfig", "ModelDeployConfig"),
    "ModelConfig": ("BackendConfig", "ModelDeployConfig", "ModelConfig"),
    "ModelTypeConfig": ("BackendConfig", "ModelDeployConfig", "ModelConfig", "models", "qwen3"),
    "ToolCallOptions": ("BackendConfig", "ModelDeployConfig", "ModelConfig", "models", "qwen3", "tool_call_options"),
    "ScheduleConfig": ("BackendConfig", "ScheduleConfig"),
}
"""Where the objects of the schema stand in the file."""


def _file_with(section: str, key: str, value: object) -> dict[str, Any]:
    content: Any = {key: value}
    for name in reversed(_SECTIONS[section]):
        content = {name: [content]} if name == "ModelConfig" else {name: content}
    raw: dict[str, Any] = content
    return raw


def _properties(section: str) -> dict[str, Any]:
    definition = SCHEMA["$defs"][section] if section else SCHEMA
    properties: dict[str, Any] = definition["properties"]
    return properties


@pytest.mark.parametrize("section", _SECTIONS)
def test_an_ignored_key_takes_any_value(section: str) -> None:
    """A config that MindIE refuses for such a key is none of this server's business."""
    for key, schema in _properties(section).items():
        if schema.get("x-ignored"):
            for value in (None, -1, "x", [[0], [0]], {"a": []}, 1.5, True):
                assert faults(_file_with(section, key, value)) == {}, key


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.sampled_from(["", "a", "-", "standard", "native", "vllm"]),
    st.lists(st.sampled_from([1, "a", None, [1]]), max_size=4),
    st.just({}),
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_models_and_the_schema_agree_on_any_value_of_any_key(data: st.DataObject) -> None:
    section = data.draw(st.sampled_from(sorted(_SECTIONS)))
    key = data.draw(st.sampled_from(sorted(_properties(section))))
    raw = _file_with(section, key, data.draw(_VALUES))
    assert (faults(raw) == {}) is VALIDATOR.is_valid(raw), json.dumps(raw)

"""What stands in the repository follows from its spec, and is what the server and its readers count on."""

from __future__ import annotations

import ast
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codegen.__main__ import main
from codegen.dialects import DIALECTS, view
from codegen.document import load
from codegen.outputs import API, CONFIG_REFERENCE, CONFIG_SCHEMA, REFERENCES, SPEC
from codegen.pointer import resolve
from codegen.profile.config import objects
from codegen.sites import UNION_KEYWORDS, component_sites, operations
from mindserve.api._generated import constants, defaults, models, openai_models
from mindserve.api._generated.operations import OPERATIONS
from mindserve.api._generated.rules import RULES
from mindserve.config._generated import Config

DOCUMENT = load(SPEC).data
VIEWS = {dialect: view(DOCUMENT, dialect)["components"]["schemas"] for dialect in DIALECTS}
CONFIG = load(CONFIG_SCHEMA).data
OBJECTS = sorted(
    (dialect, name) for dialect, schemas in VIEWS.items() for name, schema in schemas.items() if "properties" in schema
)


def test_the_generated_files_are_up_to_date() -> None:
    assert main(["--check"]) == 0


@pytest.mark.parametrize("path", sorted(API.glob("*.py")), ids=lambda path: path.name)
def test_the_generated_api_imports_msgspec_and_the_standard_library_only(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or ".")
    imported = {name for name in imported if not name.startswith("mindserve.api._generated.")}
    assert {name.split(".")[0] for name in imported} <= {"msgspec", *sys.stdlib_module_names}


def _struct(dialect: str, name: str) -> Any:
    """What is not in the module of the other dialect is the same in both."""
    module = openai_models if dialect == "openai" and hasattr(openai_models, name) else models
    return getattr(module, name)


@pytest.mark.parametrize(("dialect", "name"), OBJECTS)
def test_a_component_is_a_struct_whose_fields_stand_in_the_order_of_the_spec(dialect: str, name: str) -> None:
    struct, schema = _struct(dialect, name), VIEWS[dialect][name]
    tag = struct.__struct_config__.tag_field
    properties = [key for key in schema["properties"] if key != tag]
    assert list(struct.__struct_encode_fields__) == properties


@pytest.mark.parametrize(("dialect", "name"), OBJECTS)
def test_required_and_optional_fields_are_those_of_the_spec(dialect: str, name: str) -> None:
    struct, schema = _struct(dialect, name), VIEWS[dialect][name]
    required = {field.encode_name for field in msgspec.structs.fields(struct) if field.required}
    tag = struct.__struct_config__.tag_field
    assert required == set(schema.get("required", [])) - {tag}


def _minimal(struct: Any) -> Any:
    """An instance with the required fields alone, each null or empty."""
    return struct(**{field.name: None for field in msgspec.structs.fields(struct) if field.required})


@pytest.mark.parametrize(("dialect", "name"), OBJECTS)
def test_what_is_not_set_is_left_out_and_a_null_that_is_set_is_written(dialect: str, name: str) -> None:
    struct, schema = _struct(dialect, name), VIEWS[dialect][name]
    tag = struct.__struct_config__.tag_field
    encoded = msgspec.json.decode(msgspec.json.encode(_minimal(struct)))
    required = [key for key in schema["properties"] if key in schema.get("required", [])]
    assert [key for key in encoded if key != tag] == [key for key in required if key != tag]


def _default_of(component: str, field: str) -> Any:
    return getattr(getattr(defaults, f"{component}Defaults"), field)


def test_the_defaults_are_those_of_the_spec_and_have_the_type_of_their_field() -> None:
    found = [
        (site.component, site.name, site.schema)
        for site in component_sites(DOCUMENT)
        if site.name and site.schema.get("default") is not None
    ]
    assert ("ChatCompletionRequest", "temperature") in [(component, name) for component, name, _ in found]
    for component, name, schema in found:
        value = _default_of(component, name)
        assert value == schema["default"], (component, name)
        assert isinstance(value, float) == ("number" in schema.get("type", [])), (component, name)


def test_the_rule_table_holds_the_rules_in_their_order() -> None:
    written = [rule for _, _, _, operation in operations(DOCUMENT) for rule in operation.get("x-rules", [])]
    assert list(RULES) == [rule["id"] for rule in written]
    for rule in written:
        made = RULES[rule["id"]]
        assert (made.id, made.message, made.field) == (rule["id"], rule["message"], rule["field"])
        assert (made.doc_ref, made.interpretation) == (rule.get("doc-ref"), rule.get("interpretation"))
        assert (made.bound, list(made.values)) == (rule.get("bound"), rule.get("values", []))


def test_the_constants_are_those_of_the_spec() -> None:
    written = [item for _, _, _, operation in operations(DOCUMENT) for item in operation.get("x-constants", [])]
    made = {name: value for name, value in vars(constants).items() if name.isupper()}
    assert made == {item["id"].replace("-", "_").upper(): item["value"] for item in written}


def test_the_operation_table_holds_every_method_of_every_path() -> None:
    written = {(method.upper(), path) for _, path, method, _ in operations(DOCUMENT)}
    assert {(operation.method, operation.path) for operation in OPERATIONS.values()} == written


def test_the_limit_on_messages_is_the_same_in_contract_and_config() -> None:
    server = CONFIG["$defs"]["ServerConfig"]["properties"]
    assert RULES["messages-text-length"].bound == server["maxMessagesLength"]["default"]


def test_the_published_contract_travels_with_the_package() -> None:
    published = files("mindserve.api._generated")
    assert (published / "openapi.yaml").read_text("utf-8") == SPEC.read_text("utf-8")
    for dialect in DIALECTS:
        text = (published / f"openapi.{dialect}.json").read_text("utf-8")
        assert json.loads(text) == view(DOCUMENT, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_line_of_a_request_or_an_answer_is_in_the_reference(dialect: str) -> None:
    text = REFERENCES[dialect].read_text("utf-8")
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n### ")}
    for name, schema in VIEWS[dialect].items():
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in sections[name], (name, field)
        members = [member["$ref"].rsplit("/", 1)[-1] for key in UNION_KEYWORDS for member in schema.get(key, [])]
        assert all(f"[{member}](#{member.lower()})" in sections[name] for member in members)
    for rule in RULES.values():
        row = f"| `{rule.id}` | `{rule.field}` | {rule.message} |"
        assert (row in sections["Rules"]) == (dialect in rule.dialects)
    for operation in OPERATIONS.values():
        assert f"\n## {operation.method} {operation.path}\n" in text


def test_links_of_the_reference_lead_to_sections() -> None:
    for path in (*REFERENCES.values(), CONFIG_REFERENCE):
        text = path.read_text("utf-8")
        sections = {line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")}
        targets = {part.split(")", 1)[0] for part in text.split("](#")[1:]}
        assert targets
        assert targets <= sections


def test_the_known_keys_of_open_maps_are_in_the_reference() -> None:
    text = REFERENCES["vllm"].read_text("utf-8")
    for key in ("chat_template_kwargs.enable_thinking", "parameters.additionalProperties", "parameters.required"):
        assert f"| `{key}` |" in text


def test_every_key_of_the_config_is_in_its_table() -> None:
    text = CONFIG_REFERENCE.read_text("utf-8")
    for schema in objects(CONFIG).values():
        for name in schema["properties"]:
            assert f"`{name}`" in text


def test_the_config_models_have_the_defaults_of_the_schema() -> None:
    config = Config.model_validate({})
    server = resolve(CONFIG, "#/$defs/ServerConfig/properties")
    for field, info in type(config.server_config).model_fields.items():
        schema = server[info.alias or field]
        if "default" in schema and "$ref" not in schema:
            assert getattr(config.server_config, field) == schema["default"], field

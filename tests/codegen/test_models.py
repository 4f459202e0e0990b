"""What the generated models do: each tiny spec's models accept and refuse what the spec's own JSON Schema does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from codegen import models
from codegen.diagnostics import SpecRefused
from codegen.document import load
from tests.codegen.cases import ACCEPTED, LEFT_TO_RULES, REFUSED

SPECS = Path(__file__).with_name("specs")
NAMES = sorted(path.stem for path in SPECS.glob("*.yaml"))
Made = Callable[[str], Any]


@pytest.fixture(scope="module", params=NAMES)
def spec(request: pytest.FixtureRequest) -> Iterator[tuple[str, ModuleType, dict[str, Any]]]:
    document = load(SPECS / f"{request.param}.yaml").data
    with models.loaded(models.generate(document), name=f"codegen_test_{request.param}") as module:
        yield request.param, module, document


def _is_decoded(module: ModuleType, body: str) -> bool:
    try:
        msgspec.json.decode(body, type=module.Request)
    except msgspec.ValidationError:
        return False
    return True


def _is_valid(document: dict[str, Any], body: str) -> bool:
    schema = {"$ref": "#/components/schemas/Request", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(json.loads(body))


def test_every_tiny_spec_has_cases() -> None:
    assert set(NAMES) == set(ACCEPTED) == set(REFUSED)


def test_accepts_what_the_schema_accepts(spec: tuple[str, ModuleType, dict[str, Any]]) -> None:
    name, module, document = spec
    for body in ACCEPTED[name]:
        assert (_is_decoded(module, body), _is_valid(document, body)) == (True, True), body


def test_refuses_what_the_schema_refuses(spec: tuple[str, ModuleType, dict[str, Any]]) -> None:
    name, module, document = spec
    for body in REFUSED[name]:
        assert (_is_decoded(module, body), _is_valid(document, body)) == (False, False), body


def test_leaves_to_rules_what_the_spec_names_a_rule_for(spec: tuple[str, ModuleType, dict[str, Any]]) -> None:
    name, module, document = spec
    for body in LEFT_TO_RULES.get(name, []):
        assert (_is_decoded(module, body), _is_valid(document, body)) == (True, False), body


@pytest.fixture
def made() -> Iterator[Made]:
    """Name of a tiny spec -> module of its models, usable until the test ends."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(models.loaded(models.generate(load(SPECS / f"{name}.yaml").data)))


def test_absent_null_and_default_stay_apart(made: Made) -> None:
    module = made("nullability")
    request = msgspec.json.decode('{"must": "x", "may": null, "flag": null}', type=module.Request)
    assert (request.may, request.flag, request.free) == (None, None, msgspec.UNSET)


def test_fields_are_encoded_in_the_order_of_the_spec(made: Made) -> None:
    module = made("answers")
    answer = module.Answer(
        tokens=None,
        usage=module.Usage(last=3, first=2, total=1),
        choices=[module.Choice(text="t", index=0)],
        class_="c",
        full_text="f",
        id="i",
    )
    assert msgspec.json.encode(answer).decode() == (
        '{"id":"i","full_text":"f","class":"c","choices":[{"index":0,"text":"t"}],'
        '"usage":{"total":1,"first":2,"last":3},"tokens":null}'
    )


def test_an_optional_field_that_is_not_set_is_left_out_and_a_required_null_is_written(made: Made) -> None:
    module = made("answers")
    answer = module.Answer(id="i", choices=[], tokens=None)
    assert msgspec.json.encode(answer) == b'{"id":"i","choices":[],"tokens":null}'


def test_free_form_maps_keep_every_key(made: Made) -> None:
    module = made("open_maps")
    body = '{"settings":{"loud":true,"other":{"deep":[null]}}}'
    assert msgspec.json.encode(msgspec.json.decode(body, type=module.Request)).decode() == body


def test_texts_of_fields_are_not_repeated_in_the_models() -> None:
    source = models.generate(load(SPECS / "bounds.yaml").data)
    assert "Every bound that a model carries." in source
    assert "description" not in source


def test_a_constraint_that_the_generator_drops_is_refused() -> None:
    document = json.loads(json.dumps(load(SPECS / "bounds.yaml").data))
    fields = document["components"]["schemas"]["Request"]["properties"]
    fields["whole"]["maximum"] = 2**64
    with pytest.raises(SpecRefused, match=r"generator: msgspec\.Meta takes .* Request\.whole is generated without"):
        models.generate(document)


def test_a_dropped_constraint_is_allowed_where_a_rule_stands_for_it_and_only_there() -> None:
    document = json.loads(json.dumps(load(SPECS / "rules.yaml").data))
    models.generate(document)
    fields = document["components"]["schemas"]["Request"]["properties"]
    fields["low"]["maximum"] = 2**64
    with pytest.raises(SpecRefused, match=r"Request\.low") as refusal:
        models.generate(document)
    assert "Request.high" not in str(refusal.value)


def test_models_that_msgspec_cannot_decode_are_refused_when_generating() -> None:
    document = json.loads(json.dumps(load(SPECS / "unions.yaml").data))
    choice = document["components"]["schemas"]["Request"]["properties"]["choice"]
    choice["anyOf"].append({"type": "object", "additionalProperties": {"type": "string"}})
    with pytest.raises(SpecRefused) as refusal:
        models.generate(document)
    assert re.search(r"#/components/schemas/Request: decoder: ", str(refusal.value))

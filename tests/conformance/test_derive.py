"""The derived cases: the contract's own schema gives the same verdicts, and no field is left out."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

from conformance.case import Case, Kind
from conformance.catalogue import all_cases
from conformance.contract import Contract, lines_of, load_contract
from conformance.derive import derived_cases, request_fields
from conformance.derive_values import trials
from conformance.dialects import DIALECTS
from conformance.files import PACKAGE, read_yaml

CONTRACT = load_contract()
CASES = list(derived_cases())
FIELDS = list(request_fields(CONTRACT))
OPENAI = load_contract("openai")
OPENAI_CASES = list(derived_cases("openai"))
OPENAI_FIELDS = list(request_fields(OPENAI))
HEAVY = 1 << 20


@pytest.fixture(scope="module")
def kinds() -> dict[str, set[str]]:
    """Field -> what is tried of it."""
    return _kinds_of(CASES)


def _kinds_of(cases: list[Case]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        name, _, kind = case.id.removeprefix("request.").rpartition(".")
        found[name].add(kind)
    return found


@pytest.mark.parametrize(("contract", "cases"), [(CONTRACT, CASES), (OPENAI, OPENAI_CASES)], ids=["vllm", "openai"])
def test_the_schema_agrees_with_every_verdict(contract: Contract, cases: list[Case]) -> None:
    """seed beyond 64 bits, the list of stop strings and the like included: a bound is the contract's or it is wrong."""
    validator = contract.validator("ChatCompletionRequest")
    wrong = []
    for case in cases:
        assert case.call.change is not None
        accepted = case.expect.kind is Kind.ANSWER
        if validator.is_valid(case.call.change.body("m")) is not accepted:
            wrong.append((case.id, accepted))
    assert wrong == []


def test_every_component_of_requests_has_a_context() -> None:
    contexts = read_yaml(PACKAGE / "contexts.yaml")
    components = {
        name
        for contract in (CONTRACT, OPENAI)
        for name in contract.reachable("ChatCompletionRequest")
        if "properties" in contract.schemas[name]  # the others are choices of these, or maps that are tried as they are
    }
    assert set(contexts["components"]) == components
    assert set(contexts["fields"]) <= {field.place for field in (*FIELDS, *OPENAI_FIELDS)}


def test_every_request_field_is_tried(kinds: dict[str, set[str]]) -> None:
    assert {field.name for field in FIELDS} == set(kinds)
    theirs = {field.name for field in OPENAI_FIELDS}
    assert theirs == set(_kinds_of(OPENAI_CASES))
    assert theirs - set(kinds) == {"logit_bias", "parallel_tool_calls", "user", "metadata", "store"}


def test_maps_are_tried_at_their_bounds() -> None:
    values = {
        field: {one.kind: one.value for one in trials(OPENAI, OPENAI.field(f"ChatCompletionRequest.{field}"), None)}
        for field in ("logit_bias", "metadata")
    }
    bias, notes = values["logit_bias"], values["metadata"]
    assert [len(bias[kind]) for kind in ("no-entries", "most-entries", "too-many-entries")] == [0, 1024, 1025]
    assert [len(notes[kind]) for kind in ("no-entries", "most-entries", "too-many-entries")] == [0, 16, 17]
    assert [bias[f"entry-{kind}"]["0"] for kind in ("at-minimum", "at-maximum")] == [-100, 100]
    assert bias["entry-above-maximum"]["0"] == math.nextafter(100, 101)
    assert [notes[f"entry-{kind}"]["0"]["times"] for kind in ("longest", "too-long")] == [512, 513]
    assert "bad-key" in bias.keys() - notes.keys()


def test_refusals_have_the_status_of_their_dialect() -> None:
    for cases, status in ((CASES, 422), (OPENAI_CASES, 400)):
        assert {case.expect.status for case in cases if case.expect.kind is Kind.REFUSED} == {status}


def test_every_line_of_the_request_table_has_a_derived_case() -> None:
    assert {line for case in CASES for line in case.lines} == set(range(26, 76))


def _bounds(schema: dict[str, Any]) -> set[str]:
    named = {
        "minimum": {"at-minimum", "below-minimum"},
        "exclusiveMinimum": {"at-bound", "above-bound"},
        "maximum": {"at-maximum", "above-maximum"},
    }
    return {kind for key, kinds in named.items() if key in schema for kind in kinds}


def test_every_bound_is_tried_from_both_sides(kinds: dict[str, set[str]]) -> None:
    for field in FIELDS:
        assert _bounds(field.schema) <= kinds[field.name], field.name
    assert sum(bool(_bounds(field.schema)) for field in FIELDS) >= 12


def test_every_field_is_tried_with_null_and_wrong_types(kinds: dict[str, set[str]]) -> None:
    for field in FIELDS:
        assert "null" in kinds[field.name], field.name
        assert ("missing" in kinds[field.name]) is field.required, field.name
        assert {kind for kind in kinds[field.name] if kind.startswith("as-")}, field.name


def test_a_bound_that_changes_changes_its_cases() -> None:
    schema = {**CONTRACT.field("ChatCompletionRequest.top_logprobs"), "maximum": 21}
    values = {trial.kind: trial.value for trial in trials(CONTRACT, schema, None)}
    assert (values["at-maximum"], values["above-maximum"]) == (21, 22)


def test_floats_are_tried_just_outside_their_bounds() -> None:
    values = {one.kind: one.value for one in trials(CONTRACT, CONTRACT.field("ChatCompletionRequest.top_p"), None)}
    assert values["above-bound"] == math.nextafter(1e-6, 1)
    assert values["at-bound"] == 1e-6
    assert values["above-maximum"] == math.nextafter(1.0, 2)


def _case(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


def test_null_absent_and_default_are_one_question() -> None:
    case = _case("request.temperature.absent")
    bodies = [change.body("m") for change in case.expect.same_as]
    assert ["temperature" in body for body in bodies] == [False, True]
    assert bodies[1]["temperature"] == 1.0
    assert case.call.json_body("m") == {**bodies[0], "temperature": None}


def test_readings_of_contexts_belong_to_cases(kinds: dict[str, set[str]]) -> None:
    """One that names no case, or no reading, says nothing."""
    for field in FIELDS:
        assert set(field.reading) - {"*"} <= kinds[field.name], field.place
        assert set(field.reading.values()) <= set(CONTRACT.readings), field.place


def test_neutral_values_are_asked_of_every_server() -> None:
    """Beam search switched off is no wish for it; null is none for anything."""
    names = (
        "n.at-minimum",
        "n.null",
        "best_of.at-minimum",
        "use_beam_search.is-false",
        "logprobs.is-false",
        "tools.null",
    )
    for name in (*names, "n.absent", "use_beam_search.absent", "tools.no-items", "response_format.null"):
        case = _case(f"request.{name}")
        assert case.needs <= {"reproducible"}, name
        assert not case.expect.unless, name
    for name, need in {
        "n.at-maximum": "several",
        "use_beam_search.is-true": "beam",
        "top_logprobs.absent": "logprobs",
    }.items():
        assert need in _case(f"request.{name}").needs, name
    assert _case("request.tool_choice.null").needs == {"tools"}
    assert _case("request.tool_choice.is-required").needs == {"tools", "constrained"}


def test_where_a_default_is_compared_there_is_room_to_show_it() -> None:
    body = _case("request.presence_penalty.absent").call.json_body("m")
    assert body is not None
    assert (body["max_tokens"], body["presence_penalty"]) == (48, None)
    short = _case("request.presence_penalty.at-minimum").call.json_body("m")
    assert short is not None
    assert short["max_tokens"] == 2


def test_refusals_name_the_place() -> None:
    assert _case("request.messages.content.text.as-integer").expect.names == "messages[0].content[0].text"
    assert _case("request.stop.item-as-integer").expect.names == "stop[0]"


def test_what_only_readings_say_is_no_must() -> None:
    """And the reading is named first."""
    assert all(
        case.level == "SHOULD" and (case.readings or case.theme == "plane")
        for dialect in DIALECTS
        for case in all_cases(dialect)
        if not case.lines
    )
    for name, reading in {
        "stop_token_ids.too-many": "C24",
        "n.integral-float": "R3",
        "temperature.integer": "R3",
        "messages.role.too-long": "C24",
        "top_k.at-minimum": "R4",
        "top_k.null": "R1",
        "tools.no-items": "R19",
        "tool_choice.is-required": "R20",
        "tool_choice.function.as-string": "R20",
    }.items():
        case = _case(f"request.{name}")
        assert (case.level, case.readings[0]) == ("SHOULD", reading), name
    assert _case("request.stop.no-items").level == _case("request.temperature.null").level == "MUST"
    assert lines_of(CONTRACT.field("ChatCompletionRequest.n")) == (59,)
    assert _case("request.n.above-maximum").level == "MUST"

"""What is generated under a request's grammar is read back by the parser as what the request wanted.

No model is needed: a walk that takes any allowed token plays one that raves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from mindserve.chat.constraints.build import (
    MAX_BYTES,
    Bonds,
    Constraint,
    ConstraintRefused,
    OfferedTool,
    Thinking,
    build,
)
from mindserve.chat.constraints.schema import enforced
from mindserve.chat.constraints.writers import WRITERS
from mindserve.chat.parsing.formats import PARSERS
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call, Content, Piece, Reasoning
from mindserve.chat.parsing.steps import Family
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve_engine.grammar import GrammarCompiler
from mindserve_engine.types import Vocabulary
from tests.json_schemas import random_schema

FAMILIES = {family.name: family for family in PARSERS.values()}
EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
SPECIAL = ["<eos>", "<|python_tag|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"]
SPECIAL += ["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]
"""As tokenizers have them; the other marks are text."""
TOKENS = [bytes([i]) for i in range(256)] + [text.encode() for text in SPECIAL]
EOS = 256
SPECIAL_IDS = {text: 256 + i for i, text in enumerate(SPECIAL)}
LONGEST = 3000
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(Vocabulary(TOKENS, list(SPECIAL_IDS.values()), (EOS,)))


Walk = Callable[..., str | None]


@pytest.fixture
def walk(compiler: GrammarCompiler) -> Walk:
    """The text of a random walk through a grammar; None when it does not end in time."""

    def any_text(grammar: str, seed: int, begin: str = "") -> str | None:
        rng = random.Random(seed)
        matcher = compiler.compile(grammar)
        taken = tokens_of(begin)
        assert matcher.consume_tokens(taken)
        for _ in range(LONGEST):
            bits = matcher.compute_bitmask()
            allowed = [i for i in range(len(TOKENS)) if bits[i // 8] >> (i % 8) & 1]
            likely = [i for i in allowed if i >= EOS or chr(i) in '"}],\n<>']
            token = rng.choice(likely if likely and rng.random() < 0.3 else allowed)
            if token == EOS:
                return b"".join(TOKENS[i] for i in taken).decode()
            assert matcher.consume_token(token)
            taken.append(token)
        return None

    return any_text


def offered(schema: dict[str, Any] | None = None, name: str = "f", *, is_strict: bool = False) -> OfferedTool:
    return OfferedTool(name, schema, is_strict, f"tools[{name}]")


def built(bonds: Bonds, family: Family, thinking: Thinking | None = None) -> Constraint:
    return build(bonds, family=family, thinking=thinking or Thinking(), special_tokens=SPECIAL_IDS)


def parsed(text: str, family: Family, tools: tuple[OfferedTool, ...], **reasoning: bool) -> list[Piece]:
    toolbox = Toolbox((tool.name, tool.parameters or {}) for tool in tools)
    parser = AnswerParser(calls=CallFormat(family, toolbox), **reasoning)
    return [*parser.feed(text), *parser.finish(is_whole=True)]


def test_every_family_has_a_writer() -> None:
    assert set(WRITERS) == set(FAMILIES)


@EACH_FAMILY
def test_enforced_calls_are_calls(walk: Walk, family: Family) -> None:
    tools = (
        offered(WEATHER, "pick_city", is_strict=True),
        offered(None, "ping"),
        offered({"properties": {"größe": {"type": "integer", "minimum": 0, "maximum": 99}}}, "zähle"),
    )
    names: set[str] = set()
    for choice in ("one", "some"):
        grammar = built(Bonds(choice=choice, tools=tools), family).grammar
        for seed in range(25):
            text = walk(grammar, seed)
            if text is None:
                continue
            pieces = parsed(text, family, tools)
            assert pieces, text
            assert all(isinstance(piece, Call) for piece in pieces), (text, pieces)
            assert choice == "some" or len(pieces) == 1
            for call in pieces:
                names.add(call.name)
                arguments = json.loads(call.arguments)
                assert isinstance(arguments, dict)
                if call.name == "pick_city":
                    assert arguments.keys() == {"city"}
                    assert len(arguments["city"]) <= 8
    assert names == {"pick_city", "ping", "zähle"}


@EACH_FAMILY
def test_strict_arguments_fit_any_schema(walk: Walk, compiler: GrammarCompiler, family: Family) -> None:
    rng = random.Random(3)
    num_checked = 0
    for seed in range(200):
        schema = {
            "type": "object",
            "properties": {name: random_schema(rng, 2) for name in rng.sample(["a", "city", "größe"], 2)},
            "required": ["city"] if rng.random() < 0.5 else [],
        }
        schema["required"] = [name for name in schema["required"] if name in schema["properties"]]
        tools = (offered(schema, is_strict=True),)
        try:
            grammar = built(Bonds(choice="one", tools=tools), family).grammar
            compiler.compile(grammar)
        except Exception:
            continue  # refused, which is for others to judge
        text = walk(grammar, seed)
        if text is None:
            continue
        (call,) = parsed(text, family, tools)
        assert isinstance(call, Call), (schema, text)
        arguments = json.loads(call.arguments)
        validator = jsonschema_rs.validator_for({**schema, "additionalProperties": False})
        assert validator.is_valid(arguments), (schema, text)
        num_checked += 1
    assert num_checked > 80


@EACH_FAMILY
def test_free_text_stays_free_and_calls_in_it_are_strict(walk: Walk, compiler: GrammarCompiler, family: Family) -> None:
    tools = (offered(WEATHER, "pick_city", is_strict=True), offered(None, "ping"))
    grammar = built(Bonds(tools=tools), family).grammar
    for said in ("", "Hello.", "Über 2 < 3\n\nand more"):
        matcher = compiler.compile(grammar)
        assert matcher.consume_tokens(list(said.encode()))
        assert matcher.is_accepting()
    called, called_often = (built(Bonds(choice=choice, tools=tools), family).grammar for choice in ("one", "some"))
    most_calls = 0
    for text in (walk(made, seed) for made in (called, called_often) for seed in range(20)):
        if text is None:
            continue
        most_calls = max(most_calls, len(parsed(text, family, tools)))
        matcher = compiler.compile(grammar)
        assert matcher.consume_tokens(tokens_of(text)), text
        assert matcher.is_accepting()
    assert most_calls > 1
    wrong = written(called, compiler, '{"city": "Oslo"}', '{"town": "Oslo"}')
    if wrong is not None:
        assert not compiler.compile(grammar).consume_tokens(tokens_of(wrong))


def written(grammar: str, compiler: GrammarCompiler, right: str, wrong: str) -> str | None:
    """A call of ``pick_city`` with its arguments exchanged; None where arguments are not written as JSON."""
    rng = random.Random(0)
    for _ in range(200):
        matcher = compiler.compile(grammar)
        taken: list[int] = []
        while not matcher.is_stopped():
            text = b"".join(TOKENS[i] for i in taken).decode(errors="replace")
            if "pick_city" in text and text.endswith(('"arguments": ', '"parameters": ', "pick_city\n", "```json\n")):
                return text + wrong
            bits = matcher.compute_bitmask()
            allowed = [i for i in range(len(TOKENS)) if bits[i // 8] >> (i % 8) & 1]
            token = rng.choice(allowed)
            if token == EOS or len(taken) > LONGEST:
                break
            matcher.consume_token(token)
            taken.append(token)
    assert right
    return None


def tokens_of(text: str) -> list[int]:
    ids: list[int] = []
    while text:
        mark = next((mark for mark in SPECIAL if text.startswith(mark)), None)
        ids += [SPECIAL_IDS[mark]] if mark else list(text[0].encode())
        text = text[len(mark or text[0]) :]
    return ids


@EACH_FAMILY
@pytest.mark.parametrize("is_open", [True, False])
def test_reasoning_comes_first_and_is_free(walk: Walk, family: Family, *, is_open: bool) -> None:
    tools = (offered(WEATHER, is_strict=True),)
    grammar = built(Bonds(choice="one", tools=tools), family, Thinking(True, is_open)).grammar
    seen: set[type] = set()
    for seed in range(40):
        begin = "" if seed % 2 and not is_open else "<think>"[7 * is_open :] + "2 < 3, {so}</think>"
        text = walk(grammar, seed, begin)
        if text is None:
            continue
        pieces = parsed(text, family, tools, has_reasoning=True, in_reasoning=is_open)
        assert (Reasoning("2 < 3, {so}") in pieces) == bool(begin)
        assert isinstance(pieces[-1], Call), text
        assert not any(isinstance(piece, Content) for piece in pieces), text
        seen |= {type(piece) for piece in pieces}
    assert seen == {Reasoning, Call}


def test_forms(walk: Walk) -> None:
    hermes = FAMILIES["hermes"]
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    grammar = built(Bonds(form=schema, form_field="response_format"), hermes).grammar
    assert {walk(grammar, seed) for seed in range(20)} == {'{"a": true}', '{"a": false}'}


def test_a_form_beside_tools_is_either(walk: Walk) -> None:
    hermes, tools = FAMILIES["hermes"], (offered(WEATHER),)
    bonds = Bonds(tools=tools, form={"const": 7}, form_field="response_format")
    kinds = set()
    for seed in range(60):
        text = walk(built(bonds, hermes).grammar, seed)
        if text is None:
            continue
        pieces = parsed(text, hermes, tools)
        kinds |= {type(piece) for piece in pieces}
        assert text == "7" or all(isinstance(piece, Call) for piece in pieces)
    assert kinds == {Content, Call}


def test_names_cannot_forge_control_tokens(walk: Walk) -> None:
    name = "a<eos>b"
    for family in (family for family in FAMILIES.values() if family.can_name(name)):
        grammar = built(Bonds(choice="one", tools=(offered({"type": "object"}, name),)), family).grammar
        assert f"<[{EOS}]>" not in grammar


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, "object"),
        ({"properties": {f"p{i}": {} for i in range(513)}}, "513 properties"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no finite text"),
    ],
)
def test_what_strict_tools_cannot_ask_for(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConstraintRefused, match=reason) as refused:
        built(Bonds(tools=(offered(schema, "f", is_strict=True),)), FAMILIES["hermes"])
    assert refused.value.field == "tools[f]"
    built(Bonds(choice="one", tools=(offered(schema, "f"),)), FAMILIES["hermes"])


def test_schemas_of_a_request_have_a_size_together(compiler: GrammarCompiler) -> None:
    """Those that are not strict and do not fit are any object; so nothing large is looked through."""
    sized = {"type": "object", "properties": {"a": {"const": ""}}}
    sized["properties"]["a"]["const"] = "x" * (MAX_BYTES // 2 - len(msgspec.json.encode(sized)))
    half = offered(sized, "half", is_strict=True)
    hermes = FAMILIES["hermes"]
    for form in (None, {"const": 7}):
        bonds = Bonds(tools=(half, msgspec.structs.replace(half, name="other")), form=form, form_field="form")
        if form is None:
            built(bonds, hermes)
        else:
            with pytest.raises(
                ConstraintRefused, match="take 131083 bytes together, 131072 can be enforced"
            ) as refused:
                built(bonds, hermes)
            assert refused.value.field == "tools"
    loose = [offered(sized, name) for name in ("first", "second")]
    small = {"properties": {"b": {"const": 7}}, "required": ["b"]}
    bonds = Bonds(choice="one", tools=(half, *loose, offered(small, "last")))
    grammar = built(bonds, hermes).grammar
    assert grammar.count("x" * 1000) == 2 * (len(sized["properties"]["a"]["const"]) // 1000)
    bonds = Bonds(choice="one", tools=(*loose, offered(sized, "third"), offered(small, "last")))
    assert '"const"' not in built(bonds, hermes).grammar.rpartition('"third')[2]
    bonds = Bonds(
        choice="one", tools=(offered({"properties": {str(i): {} for i in range(20_000)}}), offered(small, "last"))
    )
    matcher = compiler.compile(built(bonds, hermes).grammar)
    assert matcher.consume_tokens(tokens_of('<tool_call>\n{"name": "last", "arguments": {"b": '))
    assert not matcher.deep_copy().consume_tokens(tokens_of("8"))
    assert matcher.consume_tokens(tokens_of("7"))


UNWRITABLE = {
    "minProperties": {"minProperties": 1},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "anyOf": {"anyOf": [{"required": ["a"]}]},
    "zz": {"required": ["zz"]},
    "only \\$defs": {"properties": {"a": {"$ref": "#"}}},
    "</parameter>": {"properties": {"a": {"enum": ["</parameter>"]}}},
    "pattern": {"properties": {"a": {"type": "string", "pattern": "x"}}},
}
"""What XML cannot hold a model to, by a word of the refusal."""


@pytest.mark.parametrize("reason", UNWRITABLE)
def test_xml_binds_only_strict_tools_to_what_it_can_write(walk: Walk, reason: str) -> None:
    family, schema = FAMILIES["qwen3_coder"], {"properties": {"a": {}}, **UNWRITABLE[reason]}
    with pytest.raises(ConstraintRefused, match=reason):
        built(Bonds(choice="one", tools=(offered(schema, is_strict=True),)), family)
    loose = (offered(schema),)
    texts = [walk(built(Bonds(choice="one", tools=loose), family).grammar, seed) for seed in range(12)]
    assert any(texts)
    for text in filter(None, texts):
        (call,) = parsed(text, family, loose)
        assert isinstance(call, Call), text


def test_xml_lets_a_tool_without_a_schema_have_parameters(compiler: GrammarCompiler) -> None:
    family, tools = FAMILIES["qwen3_coder"], (offered(None),)
    text = "<tool_call>\n<function=f>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
    matcher = compiler.compile(built(Bonds(choice="one", tools=tools), family).grammar)
    assert matcher.consume_tokens(tokens_of(text))
    assert parsed(text, family, tools) == [Call("f", '{"city": "Oslo"}')]


@EACH_FAMILY
def test_odd_names(walk: Walk, family: Family) -> None:
    name = 'a "b" \x7f /\\ {c}'
    tools = (offered({"type": "object", "additionalProperties": False}, name, is_strict=True),)
    text = walk(built(Bonds(choice="one", tools=tools), family).grammar, 0)
    assert text is not None
    assert parsed(text, family, tools) == [Call(name, "{}")]
    built(Bonds(tools=tools), family)


@pytest.mark.parametrize(
    ("bounds", "fits"),
    [
        ({"minimum": 2**63}, False),
        ({"exclusiveMaximum": -(2**60)}, False),
        ({"maximum": 2**53 + 1}, False),
        ({"minimum": -(2**53) - 1}, False),
        ({"minimum": 1 - 2**53, "maximum": 2**53 - 1}, True),
        ({"minimum": 0, "maximum": 2**63 - 1}, True),
        ({"maximum": 2**64 - 1}, True),
    ],
)
def test_bounds_that_are_held(walk: Walk, bounds: dict[str, int], *, fits: bool) -> None:
    bonds = Bonds(form={"type": "integer", **bounds}, form_field="form")
    if not fits:
        with pytest.raises(ConstraintRefused, match="2\\^53"):
            built(bonds, FAMILIES["hermes"])
        return
    validator = jsonschema_rs.validator_for(bonds.form)
    grammar = built(bonds, FAMILIES["hermes"]).grammar
    assert all(validator.is_valid(json.loads(text)) for seed in range(30) if (text := walk(grammar, seed)))


def test_the_fallback_lets_loose_what_is_not_strict(compiler: GrammarCompiler) -> None:
    tools = (offered({"type": "object", "properties": {"a": {"type": "strin"}}}),)
    constraint = built(Bonds(choice="one", tools=tools), FAMILIES["hermes"])
    with pytest.raises(Exception, match="strin"):
        compiler.compile(constraint.grammar)
    compiler.compile(constraint.fallback)
    assert constraint.parts == []


def test_schemas_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing looks through all of a schema, which may be large."""
    prepared: list[Any] = []

    def noted(schema: dict[str, Any]) -> dict[str, Any]:
        prepared.append(schema)
        return enforced(schema)

    monkeypatch.setattr("mindserve.chat.constraints.build.enforced", noted)
    tools = (offered(WEATHER, "a", is_strict=True), offered(None, "b"), offered(WEATHER, "c", is_strict=True))
    constraint = built(Bonds(tools=tools, form={"const": 7}, form_field="response_format"), FAMILIES["hermes"])
    assert len(prepared) == 3
    assert [field for field, _ in constraint.parts] == ["tools[a]", "tools[c]", "response_format"]
    assert constraint.fallback is not None


@EACH_FAMILY
@pytest.mark.parametrize("schema", [{"const": "1"}, {"type": ["string", "null"], "enum": ["1"]}])
def test_text_that_looks_like_a_number_stays_text(walk: Walk, schema: dict[str, Any], family: Family) -> None:
    tools = (offered({"properties": {"a": schema}, "required": ["a"]}, is_strict=True),)
    (call,) = parsed(walk(built(Bonds(choice="one", tools=tools), family).grammar, 0) or "", family, tools)
    assert call == Call("f", '{"a": "1"}')

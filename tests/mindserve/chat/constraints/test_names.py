"""Calls are enforced of those tools alone whose names can stand in the model's format."""

from __future__ import annotations

import json
from typing import Final, Literal

import pytest

from mindserve.chat.constraints.build import Bonds, ConstraintRefused, OfferedTool, Thinking, build
from mindserve.chat.parsing.formats import PARSERS
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import MAX_NAME, Family
from mindserve.chat.parsing.toolbox import Toolbox

FAMILIES: Final = {family.name: family for family in PARSERS.values()}
_BEGIN: Final = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
_END: Final = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
CALLS: Final = {
    "hermes": '<tool_call>\n{"name": QUOTED, "arguments": {}}\n</tool_call>',
    "qwen2_5_coder": '```json\n{"name": QUOTED, "arguments": {}}\n```',
    "llama3_json": '{"name": QUOTED, "parameters": {}}',
    "qwen3_coder": "<tool_call>\n<function=PLAIN>\n</function>\n</tool_call>",
    "chatglm3": "PLAIN\n{}",
    "glm_4": "PLAIN\n{}",
    "deepseek_v3": f"{_BEGIN}function<｜tool▁sep｜>PLAIN\n```json\n{{}}\n```{_END}",
    "deepseek_v31": f"{_BEGIN}PLAIN<｜tool▁sep｜>{{}}{_END}",
}
"""As the writers write them."""
PLAIN_NAMES: Final = ["get_weather", "a b", "天气", "a.b:c[0]", "n" * MAX_NAME]
SPACED: Final = [" a", "a ", "a\r", "\u3000", "a\x85", "\xa0a"]
NAMES: Final = [*PLAIN_NAMES, *SPACED, "a\nb", "\n", "a>b", "a<｜tool▁sep｜>b", 'a"b', "a\\b", "n" * (MAX_NAME + 1)]


def refusal(family: Family, name: str, choice: Literal["auto", "one", "some"]) -> ConstraintRefused | None:
    tools = (OfferedTool("now", None, True, "first"), OfferedTool(name, None, False, "second"))
    try:
        build(Bonds(choice=choice, tools=tools), family=family, thinking=Thinking(), special_tokens={})
    except ConstraintRefused as error:
        return error
    return None


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]) + str(len(name)))
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_what_would_not_be_read_as_a_call_is_refused(family: Family, name: str) -> None:
    parser = AnswerParser(calls=CallFormat(family, Toolbox([(name, {})])))
    call = CALLS[family.name].replace("QUOTED", json.dumps(name, ensure_ascii=False)).replace("PLAIN", name)
    is_call = [*parser.feed(call), *parser.finish(is_whole=True)] == [Call(name, "{}")]
    assert is_call or name not in PLAIN_NAMES
    assert family.can_name(name) is is_call
    refusals = [refusal(family, name, choice) for choice in ("auto", "one", "some")]
    reason = f"a tool called {name[:64]!r} cannot be called in this model's format"
    told = [None if one is None else (one.field, str(one)) for one in refusals]
    assert told == [None if is_call else ("tools", reason)] * 3

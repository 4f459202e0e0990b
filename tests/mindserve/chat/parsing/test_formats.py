"""Which parser a model gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mindserve.chat.parsing.formats import PARSERS, choose_format

SPEC = Path(__file__).parents[4] / "spec" / "config.schema.yaml"
HERMES = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{}</tool_call>"
THINKING = "{{ content.split('</think>')[-1] }}" + HERMES

TEMPLATES = [
    ("qwen2", HERMES, "hermes"),
    ("qwen3_moe", "<tool_call>\n<function=example>\n<parameter=p>\n", "qwen3_coder"),
    (
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ type }}<｜tool▁sep｜>{{ name }}\n```json\n",
        "deepseek_v3",
    ),
    ("qwen2", "<｜tool▁call▁begin｜>{{ type }}<｜tool▁sep｜>```json", "deepseek_v3"),
    ("deepseek_v3", "<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>{{ arguments }}", "deepseek_v31"),
    ("llama", '{"name": function name, "parameters": dictionary} ipython', "llama3_json"),
    ("chatglm", "{{ content }}", "glm_4"),
    ("glm4", "{{ content }}", "glm_4"),
    ("chatglm", "```python\ntool_call(a=1)\n```", "chatglm3"),
    ("llama", "{{ content }}", None),
    ("glm4_moe", "<tool_call>{name}\n<arg_key>", None),
]


@pytest.mark.parametrize(("model_type", "template", "family"), TEMPLATES)
def test_the_template_tells(model_type: str, template: str, family: str | None) -> None:
    chosen = choose_format(model_type, template).family
    assert (chosen.name if chosen else None) == family


@pytest.mark.parametrize(
    ("parser", "family"), [("qwen3_coder", "qwen3_coder"), ("no such", "hermes"), (None, "hermes")]
)
def test_the_operator_tells_better(parser: str | None, family: str) -> None:
    chosen = choose_format("qwen2", HERMES, parser=parser).family
    assert chosen is not None
    assert chosen.name == family


@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize(("template", "thinks"), [(HERMES, False), (THINKING, True)])
def test_reasoning_is_told_apart_where_the_template_knows_it(
    template: str, asked: bool | None, *, thinks: bool
) -> None:
    assert choose_format("qwen3", template, enable_reasoning=asked).has_reasoning is (
        thinks if asked is None else asked
    )


def test_marks_are_all_that_is_looked_for() -> None:
    assert choose_format("qwen3", THINKING).marks == {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    assert choose_format("qwen3", "x").marks == frozenset()


def test_the_contract_lists_the_parsers() -> None:
    schema: dict[str, Any] = yaml.safe_load(SPEC.read_text("utf-8"))
    text = " ".join(schema["$defs"]["ToolCallOptions"]["properties"]["tool_call_parser"]["description"].split())
    names = text.partition("tool calls: ")[2].partition(". ")[0].split(", ")
    assert names == list(PARSERS)

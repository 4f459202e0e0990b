"""Which format a model's answers have: by the configuration, else by its chat template, else by its type."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from mindserve.chat.parsing.families.chatglm3 import CHATGLM3
from mindserve.chat.parsing.families.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from mindserve.chat.parsing.families.glm4 import GLM4
from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.chat.parsing.families.llama3_json import LLAMA3_JSON
from mindserve.chat.parsing.families.qwen2_5_coder import QWEN25_CODER
from mindserve.chat.parsing.families.qwen3_coder import QWEN3_CODER
from mindserve.chat.parsing.machine import THINK, THINK_END
from mindserve.chat.parsing.steps import Family

PARSERS: Final = MappingProxyType[str, Family](
    {
        **dict.fromkeys(("hermes", "qwen2_5", "qwen3", "qwen3_moe"), HERMES),
        "qwen2_5_coder": QWEN25_CODER,
        "qwen3_coder": QWEN3_CODER,
        "chatglm3": CHATGLM3,
        "glm_4": GLM4,
        **dict.fromkeys(("llama", "llama3", "llama3_1"), LLAMA3_JSON),
        **dict.fromkeys(("deepseek_v3", "deepseek_r1"), DEEPSEEK_V3),
        "deepseek_v31": DEEPSEEK_V31,
    }
)
"""Families by the names of ``tool_call_parser``."""

_BY_TYPE: Final = MappingProxyType[str, Family]({"chatglm": GLM4, "glm": GLM4, "glm4": GLM4})
"""Types whose templates need not show how calls are written."""


class AnswerFormat(msgspec.Struct, frozen=True):
    """How to read what a model generates."""

    family: Family | None
    """None: the model calls no tools."""
    has_reasoning: bool
    """The model thinks before it answers."""

    @property
    def marks(self) -> frozenset[str]:
        """Texts that must be seen by the parser, be they special tokens or not."""
        reasoning = (THINK, THINK_END) if self.has_reasoning else ()
        return frozenset((*reasoning, *(self.family.literals() if self.family else ())))


@lru_cache(maxsize=16)
def choose_format(
    model_type: str, template: str, *, parser: str | None = None, enable_reasoning: bool | None = None
) -> AnswerFormat:
    """``template``: the source of the chat template. ``parser`` (a name that is not known counts for nothing) and
    ``enable_reasoning`` are the operator's word, which wins."""
    family = PARSERS.get(parser or "") or _family_of_template(template) or _BY_TYPE.get(model_type)
    return AnswerFormat(family, THINK_END in template if enable_reasoning is None else enable_reasoning)


def _family_of_template(template: str) -> Family | None:
    """Templates show the model how to write calls, and how earlier ones were written."""
    if "<function=" in template and "<parameter=" in template:
        return QWEN3_CODER
    if "<｜tool▁call▁begin｜>" in template:
        return DEEPSEEK_V3 if "```json" in template else DEEPSEEK_V31
    if "<tool_call>" in template and "<arg_key>" not in template:
        return HERMES
    if '"parameters"' in template and "ipython" in template:
        return LLAMA3_JSON
    return CHATGLM3 if "tool_call(" in template and "```python" in template else None

"""The script that lets a scripted engine answer every case that says what it wants to hear."""

from __future__ import annotations

from typing import Any, Final

import yaml

from conformance.case import marker
from conformance.catalogue import all_cases
from conformance.dialects import DIALECTS
from conformance.golden_cases import thinking_template

DEFAULT_REPLY: Final[dict[str, Any]] = {
    "default": True,
    "pieces": ["Red", ",", " green", " and", " blue", "."],
    "logprobs": -0.5,
}
"""To all other cases."""
WORDS: Final[dict[str, Any]] = {"contains": marker("vocabulary"), "pieces": [f" w{number}" for number in range(1024)]}
"""Never asked for. A model has more tokens than ``logit_bias`` takes entries, so a scripted one has, too."""
ANSWERS: Final[list[dict[str, Any]]] = [
    {
        "contains": "What is the weather in Paris?",
        "pieces": ["<tool_call>\n", '{"name": "get_weather", "arg', 'uments": {"city": "Paris"}}', "\n</tool_call>"],
        "logprobs": -0.5,
    },
    {"contains": "Give me an empty JSON object.", "pieces": ["{", "}"], "logprobs": -0.5},
    {"contains": "Answer with one word.", "pieces": ["Yes", ".", "<|im_start|>"], "logprobs": -0.5},
    {"contains": "Name a colour as JSON.", "pieces": ['{"n": ', "3", "}"], "logprobs": -0.5},
]
"""To the questions of ``bases.yaml`` that bind the answer, and to that of ``contexts.yaml`` behind whose answer a model
says control tokens."""


_THOUGHT: Final[list[dict[str, Any]]] = [
    {"contains": marker("capability"), "pieces": ["</think>", "scripted"]},
    {"contains": "<think></think>", "pieces": ["Red", "."]},
]
"""Of a model whose prompt has opened a chain of thought, or has closed it."""
_THINKING_REPLY: Final[dict[str, Any]] = {"default": True, "pieces": ["Easy", ".", "</think>", "\n\n", "Red", "."]}


def script() -> list[dict[str, Any]]:
    """The replies, in the form of a script of mindserve's scripted engine."""
    return [{"contains": marker("capability"), "pieces": ["scripted"]}, *_told(), WORDS, *ANSWERS, DEFAULT_REPLY]


def thinking_script() -> dict[str, Any]:
    """The same for a model that thinks, with its chat template: for the cases that need ``reasoning``."""
    capability, closed = _THOUGHT
    return {"chat_template": thinking_template(), "replies": [capability, *_told(), closed, _THINKING_REPLY]}


def script_text(*, thinks: bool = False, takes_media: bool = True) -> str:
    """The script as YAML. A model that thinks takes none."""
    told = thinking_script() if thinks else {"media": takes_media, "replies": script()}
    return yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120)


def _told() -> list[dict[str, Any]]:
    """What cases want to hear."""
    told = {case.id: case.reply for dialect in DIALECTS for case in all_cases(dialect) if case.reply is not None}
    return [{"contains": marker(name), **reply} for name, reply in told.items()]

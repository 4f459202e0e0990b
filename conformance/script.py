"""The script that lets a scripted engine answer every case that says what it wants to hear."""

from __future__ import annotations

from typing import Any, Final

import yaml

from conformance.case import marker
from conformance.catalogue import all_cases

DEFAULT_REPLY: Final[dict[str, Any]] = {
    "default": True,
    "pieces": ["Red", ",", " green", " and", " blue", "."],
    "logprobs": -0.5,
}
"""To all other cases."""


def script() -> list[dict[str, Any]]:
    """The replies, in the form of a script of mindserve's scripted engine."""
    told = [{"contains": marker(case.id), **case.reply} for case in all_cases() if case.reply is not None]
    return [{"contains": marker("capability"), "pieces": ["scripted"]}, *told, DEFAULT_REPLY]


def script_text() -> str:
    """The script as YAML."""
    return yaml.safe_dump(script(), sort_keys=False, allow_unicode=True, width=120)

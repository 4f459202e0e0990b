"""How a client's attempts are made and told: a line of JSON each.

A program of this folder is run as ``python with_X.py BASE_URL``, BASE_URL ending in ``/v1``, with the client's packages
(``requirements.txt``) installed and nothing of this project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

MODEL = "m"
COUNT = "count"
WEATHER = "weather in Oslo"
ANSWER = "It is 21 degrees."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER: Callable[[str], list[Any]] = lambda text: [{"role": "user", "content": text}]  # noqa: E731 - it is a word


def attempt(what: str, does: Callable[[], None]) -> None:
    """Tell whether ``does`` works, and what it says where it does not."""
    problem = ""
    try:
        does()
    except Exception as error:  # whatever a client raises is what its user sees
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps({"what": what, "problem": problem[:300]}), flush=True)


def refused(does: Callable[[], Any]) -> None:
    """Raise ``AssertionError`` unless ``does`` raises: the server got a value that it refuses."""
    try:
        does()
    except Exception:
        return
    raise AssertionError("it was not refused")


def equal(found: object, wanted: object) -> None:
    """Raise ``AssertionError`` that tells both."""
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def base_url() -> str:
    return sys.argv[1]

"""Qwen2.5, Qwen3 and models trained on Hermes' format: JSON between tags.

<tool_call>
{"name": "pick_city", "arguments": {"city": "Oslo"}}
</tool_call>
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.json_calls import named_call
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import Captures, Deliver, Family, JsonObject, Literals
from mindserve.chat.parsing.toolbox import Toolbox


def _call(captures: Captures, tools: Toolbox) -> list[Call] | None:
    call = named_call(captures["call"][0], tools)
    return None if call is None else [call]


HERMES: Final = Family(
    name="hermes",
    marks={"<tool_call>": "call"},
    table={
        "call": JsonObject(name="call", next="close"),
        "close": Literals(choices={"</tool_call>": "deliver"}, at_end="deliver"),
        "deliver": Deliver(make=_call),
    },
)

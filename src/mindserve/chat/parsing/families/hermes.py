"""Qwen2.5, Qwen3 and models trained on Hermes' format: JSON between tags.

<tool_call>
{"name": "pick_city", "arguments": {"city": "Oslo"}}
</tool_call>
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.json_calls import named_calls
from mindserve.chat.parsing.steps import Deliver, Family, JsonObject, Literals

HERMES: Final = Family(
    name="hermes",
    marks={"<tool_call>": "call"},
    table={
        "call": JsonObject(name="call", next="close"),
        "close": Literals(choices={"</tool_call>": "deliver"}, at_end="deliver"),
        "deliver": Deliver(make=named_calls),
    },
)

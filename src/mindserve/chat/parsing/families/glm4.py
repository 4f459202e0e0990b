"""GLM-4: the tool's name on a line of its own, then the arguments as JSON.

pick_city
{"city": "Oslo"}
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.json_calls import call_of
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import Captures, Deliver, Family, JsonObject
from mindserve.chat.parsing.toolbox import Toolbox


def line_call(captures: Captures, tools: Toolbox) -> list[Call] | None:
    """The call of a name and its arguments in JSON."""
    call = call_of(captures["name"][0], captures["arguments"][0], tools)
    return None if call is None else [call]


GLM4: Final = Family(
    name="glm_4",
    tool_line="arguments",
    table={
        "arguments": JsonObject(name="arguments", next="deliver"),
        "deliver": Deliver(make=line_call),
    },
)

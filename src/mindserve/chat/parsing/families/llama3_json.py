"""Llama 3.1 and later: the whole answer is one JSON object, or several with semicolons between.

{"name": "pick_city", "parameters": {"city": "Oslo"}}
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.json_calls import named_calls
from mindserve.chat.parsing.steps import Deliver, Family, JsonObject, Literals

LLAMA3_JSON: Final = Family(
    name="llama3_json",
    at_start="start",
    table={
        "start": Literals(choices={"<|python_tag|>": "call"}, otherwise="call"),
        "call": JsonObject(
            name="call", next="end", first_keys=frozenset({"name", "parameters", "arguments", "type", "id"})
        ),
        "end": Literals(choices={";": "call"}, at_end="deliver"),
        "deliver": Deliver(make=named_calls),
    },
)

"""DeepSeek R1, V3 and V3.1: marks around each call and around all of them.

R1 and V3 write the kind of call, the name, and the arguments in a fence:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>pick_city
    ```json
    {"city": "Oslo"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1 has no kind, and needs no fence:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>pick_city<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.families.glm4 import line_call
from mindserve.chat.parsing.steps import DONE, MAX_NAME, Deliver, Family, JsonObject, Literals, Step, Text

_CALLS_BEGIN: Final = "<｜tool▁calls▁begin｜>"
_CALLS_END: Final = "<｜tool▁calls▁end｜>"
_CALL_BEGIN: Final = "<｜tool▁call▁begin｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SEPARATOR: Final = "<｜tool▁sep｜>"

_MARKS: Final = {_CALLS_BEGIN: "first", _CALL_BEGIN: "call"}

_COMMON: Final[dict[str, Step]] = {
    "first": Literals(choices={_CALL_BEGIN: "call"}),
    "fence": Literals(choices={"```json": "arguments", "```": "arguments"}, otherwise="arguments"),
    "arguments": JsonObject(name="arguments", next="close"),
    "close": Literals(choices={"```": "end", _CALL_END: "deliver"}, at_end="deliver"),
    "end": Literals(choices={_CALL_END: "deliver"}, at_end="deliver"),
    "deliver": Deliver(make=line_call, next="next"),
    "next": Literals(choices={_CALL_BEGIN: "call", _CALLS_END: DONE}, otherwise=DONE, at_end=DONE),
}

DEEPSEEK_V3: Final = Family(
    name="deepseek_v3",
    marks=_MARKS,
    table={
        **_COMMON,
        "call": Text(name="kind", ends={_SEPARATOR: "name"}, limit=MAX_NAME),
        "name": Text(name="name", ends={"\n": "fence"}, is_tool=True, limit=MAX_NAME),
    },
)

DEEPSEEK_V31: Final = Family(
    name="deepseek_v31",
    marks=_MARKS,
    table={**_COMMON, "call": Text(name="name", ends={_SEPARATOR: "fence"}, is_tool=True, limit=MAX_NAME)},
)

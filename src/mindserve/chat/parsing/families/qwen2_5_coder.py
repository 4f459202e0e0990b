"""Qwen2.5-Coder: taught Hermes' tags, its smaller models prefer a fence.

```json
{"name": "pick_city", "arguments": {"city": "Oslo"}}
```

Several calls stand in one fence, one after the other. Other JSON in a fence is content: each must begin with the name
of an offered tool.
"""

from __future__ import annotations

from typing import Final

from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.chat.parsing.json_calls import named_calls
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import Captures, Deliver, Family, JsonObject, Literals
from mindserve.chat.parsing.toolbox import Toolbox


def _calls(captures: Captures, tools: Toolbox) -> list[Call] | None:
    return named_calls(captures["call"], tools)


QWEN25_CODER: Final = Family(
    name="qwen2_5_coder",
    marks={**HERMES.marks, "```json": "fenced"},
    table={
        **HERMES.table,
        "fenced": JsonObject(name="call", next="close_fence", first_keys=frozenset({"name"})),
        "close_fence": Literals(choices={"```": "deliver_all"}, otherwise="fenced", at_end="deliver_all"),
        "deliver_all": Deliver(make=_calls),
    },
)

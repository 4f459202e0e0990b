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
from mindserve.chat.parsing.steps import Family, JsonObject, Literals

QWEN25_CODER: Final = Family(
    name="qwen2_5_coder",
    marks={**HERMES.marks, "```json": "fenced"},
    table={
        **HERMES.table,
        "fenced": JsonObject(name="call", next="close_fence", first_keys=frozenset({"name"})),
        "close_fence": Literals(choices={"```": "deliver"}, otherwise="fenced", at_end="deliver"),
    },
)

"""ChatGLM3: the tool's name on a line of its own, then a Python call in a fence, or the arguments as JSON.

pick_city
 ```python
tool_call(city='Oslo')
```

What the model says first is a turn of its own: ``I look.<|assistant|>pick_city`` and so on.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from typing import Any, Final

from mindserve.chat.parsing.families.glm4 import line_call
from mindserve.chat.parsing.json_calls import json_text
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import Captures, Deliver, Family, JsonObject, Literals, Text
from mindserve.chat.parsing.toolbox import Toolbox

MAX_PYTHON: Final = 16_384
"""Characters of a Python call: reading it takes time on the event loop."""
_RESERVED: Final = re.compile(rf"\b({'|'.join(keyword.kwlist)})\s*=")
_SET_APART: Final = "_ǃ"
"""No argument's name ends so."""


def _python_call(captures: Captures, tools: Toolbox) -> list[Call] | None:
    arguments = _keyword_arguments(captures["python"][0])
    if arguments is None:
        return None
    try:
        text = json_text(arguments)
        text.encode("utf-8")
    except (ValueError, TypeError, RecursionError):  # infinity, half a surrogate pair, a set, a complex number
        return None
    return [Call(captures["name"][0], text)]


def _keyword_arguments(source: str) -> dict[str, Any] | None:
    """The keyword arguments of ``tool_call(...)``, literals all; None for any other code."""
    try:
        call = ast.parse(_with_plain_names(source.strip()), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        if call.func.id != "tool_call" or any(keyword.arg is None for keyword in call.keywords):
            return None
        return {
            str(argument.arg).removesuffix(_SET_APART): ast.literal_eval(argument.value) for argument in call.keywords
        }
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
        return None


def _with_plain_names(source: str) -> str:
    """Arguments may be called ``from`` or ``class``, which Python cannot read as names."""
    if not _RESERVED.search(source):
        return source
    tokens = [(token.type, token.string) for token in tokenize.generate_tokens(io.StringIO(source).readline)]
    for place, (kind, text) in enumerate(tokens[:-1]):
        if kind == tokenize.NAME and keyword.iskeyword(text) and tokens[place + 1][1] == "=":
            tokens[place] = (kind, text + _SET_APART)
    return tokenize.untokenize(tokens)


CHATGLM3: Final = Family(
    name="chatglm3",
    tool_line="form",
    turn="<|assistant|>",
    table={
        "form": Literals(choices={"```python": "python", "```json": "fenced", "```": "python"}, otherwise="arguments"),
        "python": Text(name="python", ends={"```": "deliver_python"}, limit=MAX_PYTHON, at_end="deliver_python"),
        "deliver_python": Deliver(make=_python_call),
        "fenced": JsonObject(name="arguments", next="close"),
        "close": Literals(choices={"```": "deliver"}, at_end="deliver"),
        "arguments": JsonObject(name="arguments", next="deliver"),
        "deliver": Deliver(make=line_call),
    },
)

"""Random requests drawn from the contract's own schema, and what the contract says of each: taken, or refused.

The drawing knows the keywords of the schema, not its fields: a field that is added to the contract is drawn too, and a
keyword that it does not know fails. Only what must fit the served model (its names, short conversations) and what keeps
a run short (few sequences) is narrowed by the field's name.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import jsonschema_rs

ANNOTATIONS: Final = {"description", "default", "deprecated", "title", "discriminator"}
CONDITIONS: Final = {"if", "then", "else", "allOf", "not", "propertyNames"}
"""Not drawn by: what breaks them is found by the validator."""
KNOWN: Final = {
    "$ref", "anyOf", "oneOf", "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "items", "minItems", "maxItems", "required", "properties", "additionalProperties",
}  # fmt: skip
NULL_SHARE: Final = 0.12
PRESENT_SHARE: Final = 0.3
LETTERS: Final = "aeiot Z\ufffdé\u4e16~\n"
"""Of random texts: few, so that stop strings occur in answers; U+FFFD is what random bytes are read as."""
WORDS: Final = ("hello", "<|im_end|>", "世界 🚀", "x" * 40, "line\nline", "{{ 7 * 7 }}")
FORMS: Final[list[dict[str, Any]]] = [
    {"type": "null"},
    {"type": "boolean"},
    {"enum": ["a", "世界"]},
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
]
"""Schemas that can be enforced, most of them by few tokens."""
KEYS: Final = ("date", "loop", "message", "level", "z9")


class Drawing:
    """Draws values that single schemas allow, mostly."""

    def __init__(self, components: dict[str, Any], dice: random.Random) -> None:
        self._components = components
        self.dice = dice

    def draw(self, schema: dict[str, Any]) -> Any:
        unknown = {key for key in schema if not key.startswith("x-")} - ANNOTATIONS - CONDITIONS - KNOWN
        assert not unknown, f"the drawing does not know {unknown}"
        if "$ref" in schema:
            return self.draw(self._components[schema["$ref"].rpartition("/")[2]])
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.dice.choice(schema["enum"])
        if "anyOf" in schema or "oneOf" in schema:
            return self._one_of(schema.get("anyOf") or schema["oneOf"])
        kinds = schema.get("type", "anything")
        if isinstance(kinds, list):
            return self._one_of([{**schema, "type": kind} for kind in kinds])
        draw: Callable[[dict[str, Any]], Any] = getattr(self, f"_{kinds}")
        return draw(schema)

    def _one_of(self, schemas: list[dict[str, Any]]) -> Any:
        others = [schema for schema in schemas if schema.get("type") != "null"]
        if len(others) < len(schemas) and self.dice.random() < NULL_SHARE:
            return None
        return self.draw(self.dice.choice(others))

    def _null(self, schema: dict[str, Any]) -> None:
        return None

    def _boolean(self, schema: dict[str, Any]) -> bool:
        return self.dice.random() < 0.5

    def _integer(self, schema: dict[str, Any]) -> int | float:
        low, high = schema.get("minimum", -(2**40)), schema.get("maximum", 2**40)
        value = self.dice.choice([
            low, high, low + 1, high - 1,
            low + self.dice.randint(0, min(8, high - low)),
            low + int((high - low) ** self.dice.random()),
        ])  # fmt: skip
        return float(value) if value < 2**31 and self.dice.random() < 0.05 else value

    def _number(self, schema: dict[str, Any]) -> float:
        low, high = schema.get("minimum"), schema.get("maximum")
        if "exclusiveMinimum" in schema:
            low = math.nextafter(schema["exclusiveMinimum"], math.inf)
        if "exclusiveMaximum" in schema:
            high = math.nextafter(schema["exclusiveMaximum"], -math.inf)
        low, high = -1e308 if low is None else low, 1e308 if high is None else high
        middle = self.dice.uniform(max(low, -2.0), min(high, 2.0))
        tiny = min(high, low + 10.0 ** self.dice.uniform(-300, -3))
        return self.dice.choice([low, high, middle, middle, middle, tiny, max(low, min(high, 1))])

    def _string(self, schema: dict[str, Any]) -> str:
        size = max(schema.get("minLength", 0), self.dice.choice([1, 1, 1, 2, 3]))
        return "".join(self.dice.choices(LETTERS, k=size))

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        low = schema.get("minItems", 0)
        size = self.dice.randint(low, max(low, min(schema.get("maxItems", 8), 8)))
        items = [self.draw(schema.get("items", {})) for _ in range(size)]
        if items and isinstance(items[0], str) and self.dice.random() < 0.4:
            items.append(items[0] + self._string({}))  # of which another is the beginning
        return items

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        drawn = {
            name: self.draw(field)
            for name, field in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or self.dice.random() < PRESENT_SHARE
        }
        if schema.get("additionalProperties") and not drawn:
            drawn = self._map(schema.get("then", {}))
        return drawn

    def _map(self, known: dict[str, Any]) -> dict[str, Any]:
        """Free keys; those that the schema speaks of among them."""
        drawn = {key: self._anything({}) for key in KEYS if self.dice.random() < 0.2}
        fields = known.get("properties", {}).items()
        drawn |= {key: self.draw(field) for key, field in fields if self.dice.random() < 0.4}
        reserved = known.get("propertyNames", {}).get("not", {}).get("enum")
        if reserved and self.dice.random() < 0.05:
            drawn[self.dice.choice(reserved)] = "x"
        return drawn

    def _anything(self, schema: dict[str, Any]) -> Any:
        if self.dice.random() < 0.5:
            return self.dice.randint(0, 299)
        return self.dice.choice(
            [-1, 2**31, 2**80, 1.5, 7.0, 1e300, "x", "", True, False, *([None] if self.dice.random() < 0.1 else [])]
        )


class RequestDrawing:
    """Draws whole requests."""

    def __init__(self, contract: dict[str, Any], models: tuple[str, ...], seed: int) -> None:
        """``models``: the served names."""
        self._schemas = contract["components"]["schemas"]
        self._drawing = Drawing(self._schemas, random.Random(seed))
        self._models = models
        self.fields = self._schemas["ChatCompletionRequest"]["properties"]
        self._narrow: dict[str, Callable[[], Any]] = {
            "model": self._model,
            "messages": self._messages,
            "n": lambda: self._few("n"),
            "best_of": lambda: self._few("best_of"),
            "response_format": self._form,
        }
        assert set(self._narrow) <= set(self.fields)

    def requests(self) -> Iterator[dict[str, Any]]:
        required = self._schemas["ChatCompletionRequest"]["required"]
        dice = self._drawing.dice
        while True:
            names = [name for name in self.fields if name in required or dice.random() < PRESENT_SHARE]
            dice.shuffle(names)
            request = {name: self._field(name) for name in names}
            if dice.random() < 0.05:
                request["no_field_of_this_api"] = self._drawing.draw({})
            yield request

    def _field(self, name: str) -> Any:
        narrow = self._narrow.get(name)
        return narrow() if narrow is not None else self._drawing.draw(self.fields[name])

    def _model(self) -> str:
        return "nobody" if self._drawing.dice.random() < 0.01 else self._drawing.dice.choice(self._models)

    def _few(self, name: str) -> Any:
        drawn = self._drawing.draw(self.fields[name])
        is_many = drawn is not None and drawn > 4
        return self._drawing.dice.randint(2, 4) if is_many and self._drawing.dice.random() < 0.97 else drawn

    def _form(self) -> Any:
        """Of a drawn form the schema is one that can be enforced."""
        drawn = self._drawing.draw(self.fields["response_format"])
        if drawn is not None and drawn.get("json_schema") is not None:
            drawn["json_schema"]["schema"] = self._drawing.dice.choice(FORMS)
        return drawn

    def _messages(self) -> list[dict[str, Any]]:
        dice = self._drawing.dice
        roles = ["user"] if dice.random() < 0.6 else dice.choices(["system", "user", "assistant", "judge"], k=3)
        return [{"role": role, "content": self._content()} for role in roles]

    def _content(self) -> Any:
        words = self._drawing.dice.choices(WORDS, k=2)
        if self._drawing.dice.random() < 0.7:
            return " ".join(words)
        return [{"type": "text", "text": word} for word in words]


# ------------------------------------------------------------------------------------------------ what is refused


def _of(request: dict[str, Any], name: str, default: Any) -> Any:
    value = request.get(name)
    return default if value is None else value


def _best_of_below_n(request: dict[str, Any]) -> bool:
    if _of(request, "use_beam_search", False) or _of(request, "stream", False):
        return False
    best_of = request.get("best_of")
    return best_of is not None and best_of < _of(request, "n", 1)


def _best_of_differs(request: dict[str, Any]) -> bool:
    if _of(request, "use_beam_search", False) or not _of(request, "stream", False):
        return False
    best_of = request.get("best_of")
    return best_of is not None and best_of != _of(request, "n", 1)


def _unknown_tool(request: dict[str, Any]) -> bool:
    choice = request.get("tool_choice")
    tools = _of(request, "tools", [])
    return isinstance(choice, dict) and choice["function"]["name"] not in [tool["function"]["name"] for tool in tools]


BEYOND_SCHEMA: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "best-of-below-n": _best_of_below_n,
    "best-of-differs-from-n-in-stream": _best_of_differs,
    "tool-choice-unknown-tool": _unknown_tool,
}
"""Rules that JSON Schema cannot say: whether a request breaks them."""
NOT_DRAWN: Final = {
    "messages-text-length",
    "tool-call-arguments-json",
    "tool-call-arguments-values",
    "media-parts-limit",
    "stop-total-length",
    "strict-schema-size",
    "response-schema-size",
}
"""Those that no drawn request breaks."""


def _lacks_tools(request: dict[str, Any]) -> bool:
    return bool(_of(request, "tools", [])) and request.get("tool_choice") != "none"


LACKING: Final = (_lacks_tools,)
"""Features that a tiny model does not have (reading C19): its template knows no tools."""


class Verdict:
    """Says which requests the contract refuses."""

    def __init__(
        self,
        validator: jsonschema_rs.Draft202012Validator,
        models: tuple[str, ...],
        lacking: tuple[Callable[[dict[str, Any]], bool], ...] = (),
    ) -> None:
        """``lacking``: wishes for features that the server has not."""
        self._validator = validator
        self._models = models
        self._lacking = lacking

    def is_taken(self, request: dict[str, Any]) -> bool:
        return (
            self._validator.is_valid(request)
            and request["model"] in self._models
            and not any(breaks(request) for breaks in BEYOND_SCHEMA.values())
            and not any(lacks(request) for lacks in self._lacking)
        )

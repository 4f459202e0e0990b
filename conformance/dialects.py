"""The two dialects of the API: the contract as each has it, and how the suite tells their refusals (D1 to D13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

VLLM: Final = "vllm"
OPENAI: Final = "openai"
DIALECTS: Final = (VLLM, OPENAI)
HEADER: Final = "X-Mindserve-Dialect"
"""Names the dialect of one request (D10)."""
_MARKS: Final = ("x-dialect", "dialect")
_OVERLAY: Final = "x-openai"
_UNPROCESSABLE: Final = 422


@dataclass(frozen=True)
class Dialect:
    """What differs beyond the schemas."""

    name: str
    error_body: str
    """The component of refusals and failures."""
    invalid: int
    """Status of a validation failure (D3)."""
    failure: str
    """The class of an engine's failure (D8)."""

    def status(self, told: int) -> int:
        """The status of a refusal whose cases write 422 for a validation failure, whatever the dialect."""
        return self.invalid if told == _UNPROCESSABLE else told

    def error_of(self, body: Any) -> dict[str, Any]:
        """A refusal's text and class, as ``message`` and ``type``. May raise what odd JSON raises."""
        if self.name == VLLM:
            return {"message": body["error"], "type": body["error_type"]}
        error: dict[str, Any] = body["error"]
        return error


_KNOWN: Final = {
    VLLM: Dialect(VLLM, "ErrorBody", _UNPROCESSABLE, "Incomplete Generation"),
    OPENAI: Dialect(OPENAI, "OpenAIErrorBody", 400, "server_error"),
}


def dialect_named(name: str) -> Dialect:
    """Raises ``KeyError``."""
    return _KNOWN[name]


def spoken(headers: Any, own: str) -> str:
    """The dialect of a request's answer: that of its header, else the server's ``own`` (D10)."""
    named: str | None = next((value for name, value in headers.items() if name.lower() == HEADER.lower()), None)
    return named if named in DIALECTS else own


def view(value: Any, dialect: str) -> Any:
    """A part of the contract as one dialect has it: without what is only the other's, with its own keywords."""
    if isinstance(value, list):
        return [view(item, dialect) for item in value if _lives(item, dialect)]
    if not isinstance(value, dict):
        return value
    overlay = value.get(_OVERLAY, {}) if dialect == OPENAI else {}
    merged = {key: item for key, item in {**value, **overlay}.items() if not (key in overlay and item is None)}
    made = {key: view(item, dialect) for key, item in merged.items() if key != _OVERLAY and _lives(item, dialect)}
    fields, kept = merged.get("properties"), made.get("properties")
    if isinstance(fields, dict) and isinstance(kept, dict) and isinstance(made.get("required"), list):
        made["required"] = [name for name in made["required"] if name in kept or name not in fields]
    return made


def _lives(item: Any, dialect: str) -> bool:
    marks = [item.get(mark) for mark in _MARKS] if isinstance(item, dict) else []
    return all(mark == dialect or mark not in DIALECTS for mark in marks)

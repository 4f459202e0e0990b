"""The views of the one spec: what holds in each dialect, with all that is only the other's taken out.

`x-dialect` marks what exists in one dialect alone. `x-openai` beside keywords says what they are in the `openai`
dialect, null that they do not exist there; without it a keyword is the same in both.
"""

from __future__ import annotations

from typing import Any, Final

from codegen.document import JsonObject
from codegen.pointer import resolve
from codegen.sites import UNION_KEYWORDS, references

DIALECTS: Final = ("vllm", "openai")
"""The first one is the document's own: its wire is what keywords say where nothing stands beside them."""
DIALECT: Final = "x-dialect"
OVERLAY: Final = "x-openai"
_RULE_DIALECT: Final = "dialect"
"""How entries of `x-rules` and `x-stream` name theirs."""


def view(document: JsonObject, dialect: str) -> JsonObject:
    """`document` as one dialect has it, without the two keys; nothing in it leads to what was taken out."""
    pruned: JsonObject = _pruned(document, dialect)
    while True:
        dead = {target for _, target in references(pruned) if not _exists(pruned, target) and _exists(document, target)}
        if not dead:
            return _still_used(pruned, document)
        pruned = _without(pruned, dead)


def _pruned(value: Any, dialect: str) -> Any:
    if isinstance(value, list):
        return [_pruned(item, dialect) for item in value if _lives(item, dialect)]
    if not isinstance(value, dict):
        return value
    overlay = value.get(OVERLAY, {}) if dialect == DIALECTS[1] else {}
    absent = {DIALECT, OVERLAY, *(key for key, item in overlay.items() if item is None)}
    merged = {key: item for key, item in {**value, **overlay}.items() if key not in absent}
    made = {key: _pruned(item, dialect) for key, item in merged.items() if _lives(item, dialect)}
    gone = set(merged.get("properties", {})) - set(made.get("properties", {})) if _is_schema(merged) else set()
    if gone:
        made["required"] = [name for name in made.get("required", []) if name not in gone]
    return made


def _lives(item: Any, dialect: str) -> bool:
    marks = (item.get(DIALECT), item.get(_RULE_DIALECT)) if isinstance(item, dict) else ()
    return all(mark == dialect or mark not in DIALECTS for mark in marks)


def _is_schema(value: JsonObject) -> bool:
    return isinstance(value.get("properties"), dict) and "required" in value


def _exists(document: JsonObject, target: str) -> bool:
    try:
        resolve(document, target)
    except KeyError:
        return False
    return True


def _without(value: Any, dead: set[str]) -> Any:
    """`value` without references to `dead`; a union that is left with one member becomes that member."""
    if isinstance(value, list):
        return [_without(item, dead) for item in value if not _is_dead(item, dead)]
    if not isinstance(value, dict):
        return value
    made = {key: _without(item, dead) for key, item in value.items() if not _is_dead(item, dead)}
    for keyword in UNION_KEYWORDS:
        members = made.get(keyword)
        if isinstance(members, list) and members != value[keyword] and len(members) == 1:
            del made[keyword]
            made |= members[0]
    return made


def _is_dead(item: Any, dead: set[str]) -> bool:
    return isinstance(item, dict) and item.get("$ref") in dead


def _still_used(document: JsonObject, original: JsonObject) -> JsonObject:
    """`document` without components to which only what was taken out had led."""
    before = {target for _, target in references(original)}
    while True:
        lost = before - {target for _, target in references(document)}
        components = {
            section: {name: item for name, item in entries.items() if f"#/components/{section}/{name}" not in lost}
            for section, entries in document.get("components", {}).items()
        }
        if components == document.get("components", {}):
            return document
        document = {**document, "components": components}

"""Whether any finite JSON text fits a schema, as far as its references tell.

``{"$ref": "#"}`` and a required property that needs another of its own kind can never be finished; a model that is
bound to them would write until it is cut off."""

from __future__ import annotations

from typing import Any, Final

from mindserve.chat.constraints.references import target_of

_NESTING: Final = 256


def is_endless(schema: Any) -> bool:
    """True when every text would be infinite. Malformed schemas count as finite: the grammar compiler refuses them."""
    search = _Search(schema)
    search.learn()
    return not search.ends(schema, _NESTING)


class _Search:
    """The least fixed point: references are taken for endless until what they name is seen to end. What waits for that
    is looked at again then, and at no other time."""

    def __init__(self, root: Any) -> None:
        self._targets = {reference: target_of(root, reference) for reference in references(root)}
        """``None``, of another document or nowhere, ends."""
        self._ending: set[int] = set()
        """The ids of those that end: many references may name one."""
        self._waiting: dict[int, list[Any]] = {}
        """By the id of a target, those that cannot be seen to end before it."""
        self._asked: set[int] = set()
        """The targets whose end would have mattered since this was last emptied."""

    def learn(self) -> None:
        """Find all references that end."""
        unseen = list({id(target): target for target in self._targets.values()}.values())
        while unseen:
            target = unseen.pop()
            self._asked.clear()
            if id(target) in self._ending:
                continue
            if self.ends(target, _NESTING):
                self._ending.add(id(target))
                unseen += self._waiting.pop(id(target), [])
            else:
                for needed in self._asked:
                    self._waiting.setdefault(needed, []).append(target)

    def _reference_ends(self, reference: str) -> bool:
        target = id(self._targets[reference])
        self._asked.add(target)
        return target in self._ending

    def ends(self, schema: Any, depth: int) -> bool:
        if not isinstance(schema, dict) or not depth or "enum" in schema or "const" in schema:
            return True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and not self._reference_ends(reference):
            return False
        for key in ("anyOf", "oneOf"):
            ways = schema.get(key)
            if isinstance(ways, list) and ways and not any(self.ends(way, depth - 1) for way in ways):
                return False
        needed = schema.get("allOf")
        if isinstance(needed, list) and not all(self.ends(one, depth - 1) for one in needed):
            return False
        return any(self._ends_as(kind, schema, depth) for kind in _kinds(schema))

    def _ends_as(self, kind: Any, schema: dict[str, Any], depth: int) -> bool:
        if kind == "object":
            properties, required = schema.get("properties"), schema.get("required")
            if not isinstance(properties, dict) or not isinstance(required, list):
                return True
            return all(self.ends(properties.get(name), depth - 1) for name in required if isinstance(name, str))
        if kind == "array":
            fewest = schema.get("minItems")
            if not isinstance(fewest, int) or fewest < 1:
                return True
            first = schema.get("prefixItems")
            given = first[:fewest] if isinstance(first, list) else []
            others = [schema.get("items")] if fewest > len(given) else []
            return all(self.ends(one, depth - 1) for one in [*given, *others])
        return True


def _kinds(schema: dict[str, Any]) -> list[Any]:
    """The types that the schema allows; where it names none, the one its keywords speak of."""
    kind = schema.get("type")
    if kind is not None:
        return kind if isinstance(kind, list) else [kind]
    return ["string"]  # keywords for objects and arrays say nothing of other values


def references(schema: Any) -> set[str]:
    """All local references, found without recursion: a body may nest deep."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            reference = one.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                found.add(reference)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found

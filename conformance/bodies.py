"""Request bodies: a named base request and what is changed in it.

A place is written as the server names it in refusals: ``messages[0].content[1].text``. A value
``{repeat: TEXT, times: N}`` is that long string (``begin`` and ``then`` around it), ``{items: VALUE, times: N}`` stands
for that long list, ``{nested: N}`` for N lists inside each other, ``{media: FILE}`` for a medium (see ``inline``);
``"{model}"`` as the model for the name of the served one, ``"{adapter}"`` for an adapter's.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from conformance.files import PACKAGE, SuiteError, read_yaml
from conformance.inline import is_short_form, written_out

Body = dict[str, Any]
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Change:
    """A base request and what is laid over it."""

    base: str = "plain"
    put: Mapping[str, Any] = field(default_factory=dict)
    """Place -> value."""
    drop: tuple[str, ...] = ()
    """Places whose keys are taken away, after ``put``."""

    def body(self, model: str, adapter: str | None = None) -> Body:
        """The whole request for the served ``model``, or for ``adapter`` where that is asked. Raises ``SuiteError``."""
        body = copy.deepcopy(bases()[self.base])
        for place, value in self.put.items():
            put(body, place, expanded(value))
        for place in self.drop:
            put(body, place, _GONE)
        return _named(body, {"{model}": model, "{adapter}": adapter})

    def but(self, *, put: Mapping[str, Any] | None = None, drop: Iterable[str] = ()) -> Change:
        """The same with further changes; what is put again is no longer dropped."""
        more = dict(put or {})
        kept = (*(place for place in self.drop if place not in more), *drop)
        return Change(self.base, {**self.put, **more}, kept)


def change_of(entry: Mapping[str, Any], base: str = "plain") -> Change:
    """A change as case files and probes write it: ``base``, ``set``, ``drop``. Raises ``ValueError``."""
    named = entry.get("base", base)
    if named not in bases():
        raise ValueError(f"there is no base request {named}")
    return Change(named, entry.get("set", {}), tuple(entry.get("drop", ())))


_GONE: Final = object()


@cache
def bases() -> dict[str, Body]:
    """The named base requests of ``bases.yaml``."""
    named: dict[str, Body] = read_yaml(PACKAGE / "bases.yaml")
    return {name: expanded(body) for name, body in named.items()}


def steps(place: str) -> list[str | int]:
    """``a[0].b`` -> ``["a", 0, "b"]``."""
    return [int(index) if index else key for key, index in _STEP.findall(place)]


def put(body: Any, place: str, value: Any) -> None:
    """Set the value at a place; its parents must be there. Raises ``SuiteError``."""
    *parents, last = steps(place)
    target = body
    try:
        for step in parents:
            target = target[step]
        if value is _GONE:
            del target[last]
        else:
            target[last] = value
    except (KeyError, IndexError, TypeError) as error:
        raise SuiteError(f"there is no {place} in the base request") from error


def expanded(value: Any) -> Any:
    """Short forms written out, at any depth."""
    if isinstance(value, list):
        return [expanded(element) for element in value]
    if not isinstance(value, dict):
        return value
    if {"repeat", "times"} <= value.keys() <= {"begin", "repeat", "times", "then"}:
        return f"{value.get('begin', '')}{value['repeat'] * value['times']}{value.get('then', '')}"
    if value.keys() == {"items", "times"}:
        return [expanded(value["items"])] * value["times"]
    if is_short_form(value):
        return written_out(value)
    if value.keys() == {"nested"}:
        return nested(value["nested"])
    return {key: expanded(member) for key, member in value.items()}


def nested(depth: int) -> list[Any]:
    """So many lists inside each other."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _named(body: Body, names: Mapping[str, str | None]) -> Body:
    model = body.get("model")
    if isinstance(model, str) and model in names:
        body["model"] = names[model]
    return body

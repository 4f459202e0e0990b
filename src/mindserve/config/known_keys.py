"""Keys that the schema does not know, or knows and gives no meaning: told to the operator, never refused."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mindserve.config._generated import Config
from mindserve.config.faults import MAX_TOLD
from mindserve.errors import shown

_IGNORED: Final = "x-ignored"
_MAX_KEY_CHARACTERS: Final = 64


def unknown_keys(raw: dict[str, object]) -> list[str]:
    """One line per unknown key, up to ``MAX_TOLD``, with the nearest known one of the same object."""
    unknown = list(_unknown(raw, Config, ""))
    lines = [_typo_line(path, key, known) for path, key, known in unknown[:MAX_TOLD]]
    return [*lines, f"and {len(unknown) - MAX_TOLD} more keys without effect"] if len(unknown) > MAX_TOLD else lines


def ignored_keys(raw: dict[str, object]) -> list[str]:
    """Paths of the keys in the file that have no meaning here, in the file's order."""
    return [f"{path}{key}" for path, key, field in _known(raw, Config, "") if _is_ignored(field)]


def _typo_line(path: str, key: str, known: list[str]) -> str:
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key[:_MAX_KEY_CHARACTERS].lower(), folded, n=1, cutoff=0.6)
    hint = f": did you mean {folded[near[0]]}?" if near else ""
    name = key if key.isprintable() and len(key) <= _MAX_KEY_CHARACTERS else shown(key)
    return f"{path}{name} is not a key of config.json and has no effect{hint}"


def _unknown(raw: dict[str, object], model: type[BaseModel], path: str) -> Iterator[tuple[str, str, list[str]]]:
    fields = _fields(model)
    for key in raw:
        if key not in fields:
            yield path, key, list(fields)
    for inner, inner_model, inner_path in _inner(raw, fields, path):
        yield from _unknown(inner, inner_model, inner_path)


def _known(raw: dict[str, object], model: type[BaseModel], path: str) -> Iterator[tuple[str, str, FieldInfo]]:
    fields = _fields(model)
    for key in raw:
        if key in fields:
            yield path, key, fields[key]
    for inner, inner_model, inner_path in _inner(raw, fields, path):
        yield from _known(inner, inner_model, inner_path)


def _inner(
    raw: dict[str, object], fields: dict[str, FieldInfo], path: str
) -> Iterator[tuple[dict[str, object], type[BaseModel], str]]:
    """The objects one level down that have a model of their own, alone, in a list or in a map."""
    for key, value in raw.items():
        model = _model_of(fields[key].annotation) if key in fields else None
        if model is None:
            continue
        for place, item in _items(value, fields[key].annotation):
            if isinstance(item, dict):
                yield item, model, f"{path}{key}{place}."


def _items(value: object, annotation: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))
    elif isinstance(value, dict) and get_origin(annotation) is dict:
        yield from ((f".{name}", item) for name, item in value.items())
    else:
        yield "", value


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """``Model`` itself, or the ``Model`` of ``list[Model]`` and ``dict[str, Model]``."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_ignored(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get(_IGNORED))

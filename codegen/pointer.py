"""JSON pointers (RFC 6901) into a document."""

from __future__ import annotations

from typing import Any


def join(pointer: str, *parts: str | int) -> str:
    """`pointer` with `parts` appended, each escaped."""
    return pointer + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def resolve(document: Any, pointer: str) -> Any:
    """The value at `pointer` (`#/a/b` or `/a/b`); raises `KeyError` when there is none."""
    value = document
    for part in pointer.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (IndexError, TypeError, ValueError, KeyError) as error:
            raise KeyError(pointer) from error
    return value

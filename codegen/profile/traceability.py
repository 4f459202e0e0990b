"""Profile of provenance: each field says which line of the document it comes from, or which reading of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.sites import Position, Site, keywords

EXTENSIONS_FILE = "extensions.md"
INTERPRETATIONS_FILE = "interpretations.md"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What `spec/docs/` defines: `x-` keys and numbered readings; None when the file does not stand there."""

    extensions: frozenset[str] | None
    interpretations: frozenset[str] | None


def vocabulary(spec: Path) -> Vocabulary:
    """Read the vocabulary that lies beside `spec`."""
    return Vocabulary(
        _words(spec.parent / "docs" / EXTENSIONS_FILE, r"`(x-[a-z][a-z0-9-]*)`"),
        _words(spec.parent / "docs" / INTERPRETATIONS_FILE, r"\b([A-Z]\d+)\b"),
    )


def _words(path: Path, pattern: str) -> frozenset[str] | None:
    return frozenset(re.findall(pattern, path.read_text(encoding="utf-8"))) if path.is_file() else None


def check_site(site: Site, *, is_on_the_wire: bool) -> Iterator[Diagnostic]:
    """A12: a property that travels names its document line or an interpretation."""
    if (
        is_on_the_wire
        and site.position is Position.PROPERTY
        and not {"x-doc-ref", "x-interpretation"} & set(site.schema)
    ):
        yield Diagnostic(site.pointer, "A12", "a field names its `x-doc-ref` (document line) or `x-interpretation`")


def check_extensions(document: JsonObject, words: Vocabulary) -> Iterator[Diagnostic]:
    """Every `x-` key of the whole document is one that `extensions.md` describes, with a value of its kind."""
    for pointer, key, value in keywords(document):
        if key.startswith("x-"):
            yield from _check_extension(key, value, words, pointer)


def _check_extension(key: str, value: Any, words: Vocabulary, pointer: str) -> Iterator[Diagnostic]:
    if words.extensions is not None and key not in words.extensions:
        yield Diagnostic(pointer, "extension", f"`{key}` is not described in docs/{EXTENSIONS_FILE}")
    values = value if isinstance(value, list) else [value]
    if key == "x-doc-ref" and not all(type(line) is int and line > 0 for line in values):
        yield Diagnostic(pointer, "A12", "a document reference is a line number, or a list of them")
    if key == "x-interpretation":
        yield from check_interpretations(values, words, pointer)


def check_interpretations(values: list[Any], words: Vocabulary, pointer: str) -> Iterator[Diagnostic]:
    """Each name is a numbered reading."""
    for name in values:
        if not isinstance(name, str) or (words.interpretations is not None and name not in words.interpretations):
            yield Diagnostic(pointer, "interpretation", f"{name!r} is not in docs/{INTERPRETATIONS_FILE}")

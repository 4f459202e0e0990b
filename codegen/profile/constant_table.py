"""Profile of the constants: unique ids, whole numbers, a description and a source each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.profile.traceability import Vocabulary, check_interpretations
from codegen.sites import operations

_KEYS = {"id", "description", "value", "doc-ref", "interpretation"}
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def check(document: JsonObject, words: Vocabulary) -> Iterator[Diagnostic]:
    """All `x-constants` of all operations; they share one module, so their ids are unique in the document."""
    known: set[str] = set()
    for pointer, _, _, operation in operations(document):
        for index, constant in enumerate(operation.get("x-constants", [])):
            place = join(pointer, "x-constants", index)
            identifier = str(constant.get("id", ""))
            if identifier in known:
                yield Diagnostic(place, "constant", f"the id `{identifier}` is used twice")
            known.add(identifier)
            yield from _check_constant(constant, place, words)


def _check_constant(constant: JsonObject, pointer: str, words: Vocabulary) -> Iterator[Diagnostic]:
    if not _ID.fullmatch(str(constant.get("id", ""))):
        yield Diagnostic(join(pointer, "id"), "constant", "an id is kebab-case")
    if not isinstance(constant.get("description"), str):
        yield Diagnostic(join(pointer, "description"), "constant", "a constant says what it is")
    if type(constant.get("value")) is not int:
        yield Diagnostic(join(pointer, "value"), "constant", "a value is a whole number")
    for name in sorted(set(constant) - _KEYS):
        yield Diagnostic(join(pointer, name), "constant", f"`{name}` is no key of a constant")
    sources = [constant["interpretation"]] if "interpretation" in constant else []
    if constant.get("doc-ref") is None and not sources:
        yield Diagnostic(pointer, "A12", "a constant names its `doc-ref` or `interpretation`")
    if type(constant.get("doc-ref")) not in (int, type(None)):
        yield Diagnostic(join(pointer, "doc-ref"), "constant", "a document reference is a line number, or null")
    yield from check_interpretations(sources, words, join(pointer, "interpretation"))

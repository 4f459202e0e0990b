"""Reads the case files. Their form is checked, so that a misspelt key is told and not ignored."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from conformance.bodies import Change, change_of, expanded
from conformance.case import CHAT, Call, Case, Check, Expectation, Kind, Level, marker
from conformance.contract import listed
from conformance.dialects import DIALECTS, VLLM, Dialect, dialect_named, spoken
from conformance.files import CASES, SuiteError, read_yaml

_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_DIALECTS: Final = {"type": "array", "minItems": 1, "items": {"enum": list(DIALECTS)}}
_STATUS: Final = {"type": "integer", "minimum": 400, "maximum": 599}
_CHANGE: Final[dict[str, Any]] = {
    "base": _TEXT,
    "set": {"type": "object"},
    "drop": _TEXTS,
}
_CHANGES: Final = {
    "type": "array",
    "items": {"type": "object", "additionalProperties": False, "properties": _CHANGE},
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["theme", "cases"],
    "properties": {
        "theme": _TEXT,
        "dialects": _DIALECTS,
        "cases": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "says", "expect"],
                "properties": {
                    "id": {"type": "string", "pattern": r"^[a-z0-9-]+(\.[a-z0-9_-]+)+$"},
                    "says": _TEXT,
                    "doc": {"type": ["integer", "array"]},
                    "reading": {"type": ["string", "array"]},
                    "level": {"enum": ["MUST", "SHOULD"]},
                    "needs": _TEXTS,
                    "dialects": _DIALECTS,
                    "reply": {"type": "object"},
                    "request": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            **_CHANGE,
                            "method": _TEXT,
                            "path": _TEXT,
                            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                            "text": {"type": ["string", "object"]},
                            "base64": _TEXT,
                            "pad_to_limit": {"type": "boolean"},
                            "fill_prompt": {"type": "boolean"},
                            "likely_token": {"type": "number"},
                            "without": _TEXTS,
                        },
                    },
                    "expect": {
                        "type": "object",
                        "additionalProperties": False,
                        "minProperties": 1,
                        "properties": {
                            "answer": {"const": True},
                            "refused": {"anyOf": [_STATUS, {"type": "object", "additionalProperties": _STATUS}]},
                            "failed": {"const": True},
                            "plane": {"type": "integer"},
                            "component": _TEXT,
                            "names": _TEXT,
                            "unless": {"anyOf": [_TEXT, _TEXTS]},
                            "check": {"type": "array"},
                            "same_as": _CHANGES,
                            "unlike": _CHANGES,
                            "longer_than": _CHANGES,
                        },
                    },
                },
            },
        },
    },
}
_VALIDATOR: Final = jsonschema_rs.Draft202012Validator(_SCHEMA)


def load_cases(dialect: str) -> Iterator[Case]:
    """The cases of all files of ``cases/`` but the rules', which are pairs. Raises ``SuiteError``."""
    for path in sorted(CASES.glob("*.yaml")):
        if path.name != "rules.yaml":
            yield from cases_of(path, dialect)


def cases_of(path: Path, dialect: str = VLLM) -> Iterator[Case]:
    """The cases of one file that hold in ``dialect``: case or file may say in which. Raises ``SuiteError``."""
    document = read_yaml(path)
    for error in _VALIDATOR.iter_errors(document):
        raise SuiteError(f"{path}: {'.'.join(map(str, error.instance_path))}: {error.message}")
    for entry in document["cases"]:
        try:
            if dialect in entry.get("dialects", document.get("dialects", DIALECTS)):
                yield _case(document["theme"], entry, dialect)
        except (KeyError, ValueError) as error:
            raise SuiteError(f"{path}: {entry['id']}: {error}") from error


def _case(theme: str, entry: Mapping[str, Any], dialect: str) -> Case:
    request = entry.get("request", {})
    change = None
    if "path" not in request and not {"text", "base64"} & set(request):
        change = change_of(request)
        if "reply" in entry:
            change = change.but(put={"messages": [{"role": "user", "content": marker(entry["id"])}]})
    needs = frozenset(entry.get("needs", ()))
    return Case(
        id=entry["id"],
        theme=theme,
        says=entry["says"],
        lines=tuple(listed(entry.get("doc"))),
        readings=tuple(listed(entry.get("reading"))),
        level=Level(entry.get("level", "MUST")),
        needs=needs | {"scripted"} if "reply" in entry else needs,
        call=_call(request, change),
        expect=_expectation(entry["expect"], change, dialect_named(spoken(request.get("headers", {}), dialect))),
        reply=entry.get("reply"),
    )


def _call(request: Mapping[str, Any], change: Change | None) -> Call:
    raw = None
    if "base64" in request:
        raw = base64.b64decode(request["base64"])
    elif "text" in request:
        text = request["text"]
        raw = (text if isinstance(text, str) else expanded(text)).encode()
    has_body = raw is not None or change is not None
    return Call(
        method=request.get("method", "POST" if has_body else "GET"),
        path=request.get("path", CHAT),
        headers=request.get("headers", {}),
        change=change,
        raw=raw,
        pad_to_limit=request.get("pad_to_limit", False),
        fill_prompt=request.get("fill_prompt", False),
        likely_token=request.get("likely_token"),
        without=tuple(request.get("without", ())),
    )


def _expectation(entry: Mapping[str, Any], change: Change | None, answers: Dialect) -> Expectation:
    """``answers``: the dialect of the answer."""
    (kind,) = [kind for kind in Kind if kind.value in entry]
    status = entry[kind.value]
    if kind is Kind.REFUSED:
        status = status[answers.name] if isinstance(status, dict) else answers.status(status)
    same_as, unlike, longer_than = (
        tuple(
            (change or Change()).but(put=other.get("set"), drop=other.get("drop", ())) for other in entry.get(key, ())
        )
        for key in ("same_as", "unlike", "longer_than")
    )
    return Expectation(
        kind=kind,
        status=200 if status is True else status,
        names=entry.get("names"),
        unless=tuple(listed(entry.get("unless"))),
        checks=tuple(_check(one) for one in entry.get("check", ())),
        same_as=same_as,
        unlike=unlike,
        longer_than=longer_than,
        component=entry.get("component"),
    )


def _check(entry: Any) -> Check:
    if isinstance(entry, str):
        return Check(entry)
    ((name, argument),) = entry.items()
    return Check(name, argument)

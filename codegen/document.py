"""A YAML document of `spec/`, read once and strictly."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.pointer import join

JsonObject = dict[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that keeps dates as text: JSON, which is what the document means, has no dates."""


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Document:
    """A spec file: its text, the JSON value it stands for and the digest that generated files are stamped with."""

    path: Path
    text: str
    data: JsonObject
    sha256: str = field(default="")


def as_json(data: JsonObject) -> str:
    """Compact JSON, in the order of the YAML file."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def load(path: Path) -> Document:
    """Read `path`; raises `SpecRefused` for YAML errors, duplicate keys and keys or values that JSON does not have."""
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=_StrictLoader)
    except OSError as error:
        raise SpecRefused([Diagnostic("", "file", f"cannot be read: {error.strerror}: {path}")]) from error
    except yaml.YAMLError as error:
        raise SpecRefused([Diagnostic("", "yaml", str(error))]) from error
    faults: list[Diagnostic] = []
    _check_keys(root, "", faults)
    if not isinstance(root, yaml.MappingNode):
        faults.append(Diagnostic("", "yaml", "the document is not a mapping"))
    if faults:
        raise SpecRefused(faults)
    data = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    return Document(path, text, data, hashlib.sha256(text.encode()).hexdigest())


def _check_keys(node: yaml.Node | None, pointer: str, faults: list[Diagnostic]) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _check_keys(item, join(pointer, index), faults)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            faults.append(Diagnostic(join(pointer, key.value), "yaml", "duplicate key: YAML would keep the last"))
        if key.tag != "tag:yaml.org,2002:str":
            faults.append(Diagnostic(join(pointer, key.value), "yaml", "key is not a string; quote it"))
        seen.add(key.value)
        _check_keys(value, join(pointer, key.value), faults)

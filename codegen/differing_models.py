"""The models of a dialect as far as they are not those of the other: the rest is imported from there.

What clients send is a subclass, so that whatever reads requests reads both; what the server sends stands by itself.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Container
from dataclasses import dataclass

from codegen import models
from codegen.document import JsonObject
from codegen.sites import directions


@dataclass(frozen=True, slots=True)
class _Definition:
    """A class or an alias of a module."""

    name: str
    node: ast.ClassDef | ast.AnnAssign | ast.Assign
    text: str

    @property
    def names(self) -> set[str]:
        """All names in it, those of other definitions among them."""
        return {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}


@dataclass(frozen=True, slots=True)
class Module:
    """The models of the first dialect: where they are imported from, and their source."""

    name: str
    source: str


def generate(first: JsonObject, second: JsonObject, *, first_module: str) -> str:
    """The source of the module for the view `second`, without header; `first_module` has the models of `first`."""
    module = Module(first_module, models.generate(first))
    requests = directions(second).requests
    return differing(module, models.generate(second), requests=requests, arguments=", kw_only=True")


def differing(first: Module, source: str, *, requests: Container[str], arguments: str = "") -> str:
    """What of `source` is not in `first`. `requests`: names of what clients send, `arguments`: those of a subclass
    behind its base."""
    of_first, of_second = _definitions(first.source), _definitions(source)
    own = _differing(of_first, of_second)
    texts = []
    for name, definition in of_second.items():
        if name in own:
            old = of_first.get(name)
            texts.append(_subclass(old, definition, arguments) if old and name in requests else definition.text)
    body = "\n\n\n".join(texts)
    shared = sorted({name for item in own for name in of_second[item].names} & (set(of_second) - own))
    lines = [_imports(source), "", f"import {first.name} as models" if "(models." in body else ""]
    lines += [f"from {first.name} import {', '.join(shared)}" if shared else ""]
    return "\n".join(line for line in lines) + f"\n\n\n{body}\n"


def _definitions(source: str) -> dict[str, _Definition]:
    found = {}
    for node in ast.parse(source).body:
        name = node.name if isinstance(node, ast.ClassDef) else _target(node)
        if isinstance(node, ast.ClassDef | ast.AnnAssign | ast.Assign) and name is not None:
            found[name] = _Definition(name, node, ast.get_source_segment(source, node) or "")
    return found


def _target(node: ast.stmt) -> str | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _imports(source: str) -> str:
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(source.splitlines()[: nodes[-1].end_lineno])


def _differing(of_first: dict[str, _Definition], of_second: dict[str, _Definition]) -> set[str]:
    """Those with another text, and whatever is made of them."""
    own = {name for name, item in of_second.items() if name not in of_first or of_first[name].text != item.text}
    while True:
        more = {name for name, item in of_second.items() if item.names & own} | own
        if more == own:
            return own
        own = more


def _subclass(old: _Definition, new: _Definition, arguments: str) -> str:
    """`new` as what it has beyond `old`. A request of one dialect that lacked fields of the other, or had other ones,
    could not be read as such."""
    assert isinstance(old.node, ast.ClassDef)
    assert isinstance(new.node, ast.ClassDef)
    before, after = _fields(old.node), _fields(new.node)
    if not set(before) <= set(after):
        return new.text
    header = f"class {new.name}(models.{old.name}{arguments}):"
    text = ast.get_docstring(new.node)
    docstring = [] if text is None else [f'    """\n    {text}\n    """\n']
    fields = [textwrap.indent("\n".join([text, *after[text]]), "    ") for text in after if text not in before]
    return "\n".join([header, *docstring, *fields])


def _fields(node: ast.ClassDef) -> dict[str, list[str]]:
    """A field -> the lines of its docstring."""
    found: dict[str, list[str]] = {}
    last: list[str] | None = None
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            last = found[ast.unparse(item)] = []
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and last is not None:
            last += ['"""', str(item.value.value).strip(), '"""']
    return found

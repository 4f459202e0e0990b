"""The models of a dialect as far as they are not those of the other: the rest is imported from there.

What clients send is a subclass, so that whatever reads requests reads both; what the server sends stands by itself.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codegen import models
from codegen.document import JsonObject
from codegen.sites import directions


@dataclass(frozen=True, slots=True)
class _Definition:
    """A class or an alias of a module."""

    name: str
    node: ast.ClassDef | ast.AnnAssign
    text: str

    @property
    def names(self) -> set[str]:
        """All names in it, those of other definitions among them."""
        return {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}


def generate(first: JsonObject, second: JsonObject, *, first_module: str) -> str:
    """The source of the module for the view `second`, without header; `first_module` has the models of `first`."""
    of_first, source = _definitions(models.generate(first)), models.generate(second)
    of_second = _definitions(source)
    own = _differing(of_first, of_second)
    requests = directions(second).requests
    texts = []
    for name, definition in of_second.items():
        if name in own:
            old = of_first.get(name)
            texts.append(_subclass(old, definition) if old and name in requests else definition.text)
    body = "\n\n\n".join(texts)
    shared = sorted({name for item in own for name in of_second[item].names} & (set(of_second) - own))
    lines = [_imports(source), "", f"import {first_module} as models" if "(models." in body else ""]
    lines += [f"from {first_module} import {', '.join(shared)}" if shared else ""]
    return "\n".join(line for line in lines) + f"\n\n\n{body}\n"


def _definitions(source: str) -> dict[str, _Definition]:
    found = {}
    for node in ast.parse(source).body:
        name = node.name if isinstance(node, ast.ClassDef) else _target(node)
        if isinstance(node, ast.ClassDef | ast.AnnAssign) and name is not None:
            found[name] = _Definition(name, node, ast.get_source_segment(source, node) or "")
    return found


def _target(node: ast.stmt) -> str | None:
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


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


def _subclass(old: _Definition, new: _Definition) -> str:
    """`new` as what it has beyond `old`. A request of one dialect that lacked fields of the other, or had other ones,
    could not be read as such."""
    assert isinstance(old.node, ast.ClassDef)
    assert isinstance(new.node, ast.ClassDef)
    before = {ast.unparse(item) for item in old.node.body if isinstance(item, ast.AnnAssign)}
    after = {ast.unparse(item): item for item in new.node.body if isinstance(item, ast.AnnAssign)}
    if not before <= set(after):
        return new.text
    header = f"class {new.name}(models.{old.name}, kw_only=True):"
    text = ast.get_docstring(new.node)
    docstring = [] if text is None else [f'    """\n    {text}\n    """\n']
    fields = [f"    {text}" for text in after if text not in before]
    return "\n".join([header, *docstring, *fields])

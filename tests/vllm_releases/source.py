"""Python code that is read, not imported: which parameters a function has, which members a class."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A package's files. Names are followed to the file that defines them, bases to theirs."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        """``read`` gives the text of a file by its path (``vllm/inputs/__init__.py``), None where there is none."""
        self._read = read
        self._module = functools.cache(self._parsed)

    def parameters(self, place: str) -> set[str]:
        """Of the function there. Raises ``LookupError`` when there is none."""
        found = self._find(place)
        if not isinstance(found, _FUNCTIONS):
            raise LookupError(f"{place} is a class")
        arguments = found.args
        return {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}

    def members(self, place: str) -> set[str]:
        """Of the class there and its bases: what it defines, and what its methods set of themselves."""
        return {name for module, kind in self._with_bases(place) for name in _own_members(kind)}

    def attributes(self, place: str, argument: str) -> set[str]:
        """Those that the function reads of its ``argument``."""
        return {
            node.attr
            for node in ast.walk(self._find(place))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == argument
        }

    def _find(self, place: str) -> Definition:
        module, _, path = place.partition(":")
        name, _, member = path.partition(".")
        if not member:
            return self._definition(module, name)[1]
        for _, kind in self._with_bases(f"{module}:{name}"):
            for item in kind.body:
                if isinstance(item, _FUNCTIONS) and item.name == member:
                    return item
        raise LookupError(f"{place} is not there")

    def _with_bases(self, place: str) -> Iterator[tuple[str, ast.ClassDef]]:
        module, _, name = place.partition(":")
        home, kind = self._definition(module, name)
        if not isinstance(kind, ast.ClassDef):
            raise LookupError(f"{place} is no class")
        yield home, kind
        for base in kind.bases:
            if isinstance(base, ast.Name) and self._is_known(home, base.id):
                yield from self._with_bases(f"{home}:{base.id}")

    def _is_known(self, module: str, name: str) -> bool:
        try:
            self._definition(module, name)
        except LookupError:  # a base of another package
            return False
        return True

    def _definition(self, module: str, name: str) -> tuple[str, Definition]:
        """With the module that has it."""
        for item in _statements(self._module(module)):
            if isinstance(item, (*_FUNCTIONS, ast.ClassDef)) and item.name == name:
                return module, item
            if isinstance(item, ast.ImportFrom) and item.module is not None:
                for alias in item.names:
                    if (alias.asname or alias.name) == name:
                        return self._definition(self._absolute(module, item), alias.name)
        raise LookupError(f"{module}:{name} is not there")

    def _absolute(self, module: str, item: ast.ImportFrom) -> str:
        """The module that an import in ``module`` names."""
        if not item.level:
            return str(item.module)
        is_package = self._read(f"{module.replace('.', '/')}/__init__.py") is not None
        parts = module.split(".")
        return ".".join([*parts[: len(parts) + is_package - item.level], str(item.module)])

    def _parsed(self, module: str) -> ast.Module:
        path = module.replace(".", "/")
        text = self._read(f"{path}.py") or self._read(f"{path}/__init__.py")
        if text is None:
            raise LookupError(f"there is no module {module}")
        return ast.parse(text)


def _statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Of the module itself, those under a condition included."""
    for item in module.body:
        yield item
        if isinstance(item, (ast.If, ast.Try)):
            yield from (*item.body, *item.orelse)


def _own_members(kind: ast.ClassDef) -> Iterator[str]:
    for item in kind.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Assign):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))
        elif isinstance(item, _FUNCTIONS):
            yield item.name
            for node in ast.walk(item):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                    yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"

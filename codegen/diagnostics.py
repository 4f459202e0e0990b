"""What the generator has to say about a spec, each with the place it is about."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One fault of a spec: a JSON pointer into the document, the profile rule that is broken, and the way out."""

    pointer: str
    code: str
    message: str
    file: str = ""

    def __str__(self) -> str:
        return f"{self.file}#{self.pointer}: {self.code}: {self.message}"


class SpecRefused(Exception):
    """A spec cannot be generated from; carries every fault that was found, not the first."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = sorted(set(diagnostics), key=lambda item: (item.file, item))
        super().__init__("\n".join(str(item) for item in self.diagnostics))

    def about(self, file: str) -> SpecRefused:
        """The same faults, each with the name of the file that it lies in."""
        return SpecRefused([replace(item, file=file) for item in self.diagnostics])

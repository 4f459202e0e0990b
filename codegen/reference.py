"""The readable reference."""

from __future__ import annotations

from codegen.document import JsonObject


def generate(document: JsonObject) -> str:
    """Markdown."""
    return "# Reference\n"

"""Jinja2 as the one way of writing text: templates hold layout and loops, the modules beside them hold the thinking."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """`template` filled in; a name that is not given is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(  # noqa: S701 (Python and Markdown, not HTML)
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["py"] = repr
    return environment

"""The readable reference as HTML: the same Markdown, and the readings that it cites, with links between the two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

_READINGS = "interpretations.md"
_READING = re.compile(r"\b([A-Z]\d+)\b")
_MAX_CONTENTS_LEVEL = 3


def generate(reference: str, readings: str) -> str:
    """The inside of a page's body: contents, the reference, and the readings where there are any ("": none)."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    parts = [markdown.parse(_without_breaks(text)) for text in (reference, readings) if text]
    known = {name for tokens in parts for name in _first_cells(tokens) if _READING.fullmatch(name)}
    headings = [heading for tokens in parts for heading in _name_headings(tokens)]
    for tokens in parts:
        _name_readings(tokens, known)
        _link(tokens, known, {f"{_READINGS}": f"#{_slug(_title(parts[-1]))}"})
    body = "".join(markdown.renderer.render(tokens, markdown.options, {}) for tokens in parts)
    return f"{_contents(headings)}<main>\n{_scrolling_tables(body)}</main>\n"


def _without_breaks(text: str) -> str:
    """The reference separates the bodies of an answer by a tag, the only HTML in it."""
    return text.replace("<br>", ", ")


def _title(tokens: list[Token]) -> str:
    return next(heading for _, heading, _ in _name_headings(tokens))


def _slug(title: str) -> str:
    """The anchor that Markdown's readers give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _name_headings(tokens: list[Token]) -> list[tuple[int, str, str]]:
    """(level, title, anchor) of each heading, which gets the anchor."""
    found = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = _slug(inline.content)
            opening.attrSet("id", anchor)
            found.append((int(opening.tag[1:]), inline.content, anchor))
    return found


def _rows(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """(opening, text of the first cell) of each row of a table."""
    for row, _, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if row.type == "tr_open":
            yield row, inline.content


def _first_cells(tokens: list[Token]) -> set[str]:
    return {text for _, text in _rows(tokens)}


def _name_readings(tokens: list[Token], known: set[str]) -> None:
    for row, text in _rows(tokens):
        if text in known:
            row.attrSet("id", text)


def _link(tokens: list[Token], known: set[str], files: dict[str, str]) -> None:
    """Numbers of readings become links to them, links to files links into the page."""
    for token in tokens:
        children, inside = token.children or [], False
        linked: list[Token] = []
        for child in children:
            inside = child.type == "link_open" or (inside and child.type != "link_close")
            target = str(child.attrGet("href") or "")
            if child.type == "link_open" and target in files:
                child.attrSet("href", files[target])
            linked += _pieces(child, known) if child.type == "text" and not inside else [child]
        token.children = linked if token.children is not None else None


def _pieces(text: Token, known: set[str]) -> Iterator[Token]:
    for index, piece in enumerate(_READING.split(text.content)):
        if index % 2 and piece in known:
            yield Token("link_open", "a", 1, attrs={"href": f"#{piece}"})
            yield Token("text", "", 0, content=piece)
            yield Token("link_close", "a", -1)
        elif piece:
            yield Token("text", "", 0, content=piece)


def _contents(headings: Iterable[tuple[int, str, str]]) -> str:
    items = [
        f'<li class="level{level}"><a href="#{anchor}">{escape(title)}</a></li>\n'
        for level, title, anchor in headings
        if level <= _MAX_CONTENTS_LEVEL
    ]
    return f'<nav aria-label="Contents">\n<ul>\n{"".join(items)}</ul>\n</nav>\n'


def _scrolling_tables(body: str) -> str:
    """A wide table scrolls by itself, with the keyboard too."""
    opening = '<div class="table" role="region" aria-label="Table" tabindex="0">\n<table>'
    return body.replace("<table>", opening).replace("</table>", "</table>\n</div>")

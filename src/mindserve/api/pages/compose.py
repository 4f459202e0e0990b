"""The pages as bytes: put together once, from files of this folder and what the generator made of the contract."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Final

import jinja2
import msgspec

from mindserve.chat.media.limits import media_limits
from mindserve.config.settings import Dialect, MediaSettings
from mindserve_engine.types import MediaKind

_HERE: Final = files(__package__)
_GENERATED: Final = files("mindserve.api._generated")
_SCRIPTS: Final = ("page.js", "fields.js", "events.js", "times.js", "turns.js", "attach.js", "playground.js")
"""In the order in which they are run: one script, so that one digest permits it."""
_MAIN_HEADING: Final = re.compile(r'<h1 id="([^"]+)"')


class Page(msgspec.Struct, frozen=True):
    """A document, its entity tag with the quotes, and the policy that it needs."""

    body: bytes
    etag: str
    policy: str


@cache
def playground(dialect: Dialect, *, full_text: bool, media: MediaSettings, max_request_bytes: int) -> Page:
    """The page of a server of that dialect; ``full_text``: its streams repeat all text (setting fullTextEnabled). Files
    beyond the limits of ``media`` and ``max_request_bytes`` are not sent."""
    fields = json.loads((_GENERATED / "playground.json").read_bytes())
    script = "".join((_HERE / name).read_text("utf-8") for name in _SCRIPTS)
    return _page(
        kind="playground",
        title="mindserve playground",
        body=(_HERE / "playground.html").read_text("utf-8"),
        facts=json_element(
            {
                "dialect": dialect.value,
                "full_text": full_text,
                "fields": fields,
                "media": _media_facts(media, max_request_bytes),
            }
        ),
        script=f'(() => {{ "use strict";\n{script}}})();',
    )


def _media_facts(media: MediaSettings, max_request_bytes: int) -> dict[str, object]:
    """Each limit with the setting that says so."""
    sizes = media_limits(media).sizes
    return {
        "sizes": {
            kind.value: {"most": sizes[f"{kind}_url"].max_bytes, "setting": sizes[f"{kind}_url"].setting}
            for kind in MediaKind
        },
        "parts": {"most": media.max_parts, "setting": "maxMediaParts"},
        "request": {"most": max_request_bytes, "setting": "maxRequestLength"},
    }


@cache
def docs(dialect: Dialect) -> Page:
    """The contract of a dialect for reading."""
    reference = (_GENERATED / f"reference.{dialect.value}.html").read_text("utf-8")
    heading = _MAIN_HEADING.search(reference)
    assert heading is not None
    template = _environment().get_template("docs.html.j2")
    names = [one.value for one in Dialect]
    body = template.render(dialect=dialect.value, dialects=names, reference=reference, anchor=heading[1])
    return _page(kind="docs", title=f"mindserve reference, dialect {dialect.value}", body=body, facts=None, script="")


def json_element(value: object) -> str:
    """JSON for the inside of a script element, which nothing in it can end."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _page(*, kind: str, title: str, body: str, facts: str | None, script: str) -> Page:
    style = "".join((_HERE / name).read_text("utf-8") for name in ("shared.css", f"{kind}.css"))
    text = _environment().get_template("page.html.j2")
    content = text.render(kind=kind, title=title, style=style, body=body, facts=facts, script=script).encode()
    tag = hashlib.sha256(content).hexdigest()[:32]
    return Page(content, f'"{tag}"', _policy(style, script))


def _policy(style: str, script: str) -> str:
    """No source but the page itself, no connection but to its server."""
    allowed = {
        "default-src": "'none'",
        "style-src": _digest(style),
        "script-src": _digest(script) if script else "'none'",
        "connect-src": "'self'" if script else "'none'",
        "img-src": "data:",
        "media-src": "data:" if script else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(lambda name: (_HERE / name).read_text("utf-8"))
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

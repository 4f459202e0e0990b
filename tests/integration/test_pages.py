"""The pages for a browser (reading H11), over real HTTP: what is sent, when nothing is, and that all of it is there."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest

from mindserve.api.dialect import DIALECT_HEADER
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import MODEL, Live, Model, running

PAGES = ("/", "/docs")
FETCHING = {"src", "srcset", "poster", "action", "formaction", "background", "ping"}


@pytest.fixture(params=Dialect)
async def live(model: Model, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    async with running(model, ServeSettings(model_name=MODEL, dialect=request.param)) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url) as opened:
        yield opened


class Elements(HTMLParser):
    """All elements with their attributes, and the text inside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:  # inside of a script or a style
            self.inside.setdefault(self.get_starttag_text() or "", []).append(data)


def policy_of(response: httpx2.Response) -> dict[str, str]:
    parts = response.headers["content-security-policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_one_document_that_loads_nothing(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for tag, attributes in Elements(response.text).found:
        assert not FETCHING & set(attributes), (tag, attributes)
        assert tag != "link" or attributes == {"rel": "icon", "href": "data:,"}
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not re.match(r"(https?:)?//", attributes.get("href") or ""), (tag, attributes)


@pytest.mark.parametrize("path", PAGES)
async def test_the_policy_permits_the_page_s_own_script_and_style_and_no_other(
    client: httpx2.AsyncClient, path: str
) -> None:
    response = await client.get(path)
    elements, policy = Elements(response.text), policy_of(response)
    for kind in ("script", "style"):
        texts = elements.inside.get(f"<{kind}>", [])
        allowed = policy[f"{kind}-src"]
        digests = [base64.b64encode(hashlib.sha256("".join(texts).encode()).digest()).decode()] if texts else []
        assert allowed == (f"'sha256-{digests[0]}'" if digests else "'none'")
    assert "<script>" in elements.inside or path == "/docs"
    assert policy["connect-src"] == ("'self'" if path == "/" else "'none'")
    for closed in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[closed] == "'none'"
    assert "unsafe" not in response.headers["content-security-policy"]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_that_the_browser_has_is_not_sent_again(client: httpx2.AsyncClient, path: str) -> None:
    first = await client.get(path)
    etag = first.headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', etag)
    assert first.headers["cache-control"] == "no-cache"
    for value in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await client.get(path, headers={"If-None-Match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    for value in ('"other"', etag.strip('"'), ""):
        assert (await client.get(path, headers={"If-None-Match": value})).content == first.content
    head = await client.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", etag)


async def test_the_reference_is_of_the_dialect_that_the_link_names(client: httpx2.AsyncClient, live: Live) -> None:
    own = await client.get("/docs")
    pages = {dialect: await client.get(f"/docs?dialect={dialect}") for dialect in Dialect}
    assert own.content == pages[live.server.settings.dialect].content
    assert ["logit_bias" in page.text.split("How we read the document</h1>")[0] for page in pages.values()] == [
        False,
        True,
    ]
    assert len({page.headers["etag"] for page in pages.values()}) == 2
    for query in ("?dialect=mindie", "?dialect=", "?dialect=vllm&dialect=openai"):
        refused = await client.get(f"/docs{query}")
        assert refused.status_code == (422 if live.server.settings.dialect is Dialect.VLLM else 400)
        assert "dialect must be vllm or openai" in refused.text
    assert (await client.get("/docs", headers={DIALECT_HEADER: "openai"})).content == own.content


async def test_links_of_the_reference_lead_to_places_in_it(client: httpx2.AsyncClient) -> None:
    elements = Elements((await client.get("/docs")).text).found
    places = [attributes["id"] for _, attributes in elements if "id" in attributes]
    targets = {attributes["href"][1:] for _, attributes in elements if attributes.get("href", "").startswith("#")}
    assert len(places) == len(set(places))
    assert {"chatcompletionrequest", "R7", "H11", "how-we-read-the-document"} <= targets <= set(places)


async def test_without_pages_there_is_nothing_at_their_paths(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, browser_pages=False)
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        for path in PAGES:
            response = await client.get(path)
            assert response.status_code == 404
            assert response.json()["error_type"] == "NotFoundError"
        assert (await client.get("/openapi.yaml")).status_code == 200

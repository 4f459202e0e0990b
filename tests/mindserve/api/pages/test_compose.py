"""The pages as bytes; what is sent of them is in tests/integration/test_pages.py."""

from __future__ import annotations

import json

from mindserve.api.pages.compose import Page, json_element, playground
from mindserve.config.settings import Dialect, MediaSettings


def test_nothing_in_json_can_end_its_element() -> None:
    value = {"a": "</script><script>alert(1)</script><!--"}
    assert "<" not in json_element(value)
    assert json.loads(json_element(value)) == value


def page_of(dialect: Dialect = Dialect.VLLM, *, full_text: bool = False, **media: int) -> Page:
    return playground(dialect, full_text=full_text, media=MediaSettings(**media), max_request_bytes=1000)


def test_a_page_knows_how_its_server_streams() -> None:
    pages = {
        (dialect, full_text): page_of(dialect, full_text=full_text)
        for dialect in Dialect
        for full_text in (False, True)
    }
    assert len({page.etag for page in pages.values()}) == 4
    assert len({page.policy for page in pages.values()}) == 1
    assert b'"full_text": true' in page_of(full_text=True).body


def test_a_page_knows_its_server_s_limits_of_media() -> None:
    body = page_of(max_parts=7, max_image_bytes=11).body
    assert b'"parts": {"most": 7, "setting": "maxMediaParts"}' in body
    assert b'"image": {"most": 11, "setting": "maxImageSize"}' in body
    assert b'"request": {"most": 1000, "setting": "maxRequestLength"}' in body


def test_a_page_is_put_together_once() -> None:
    assert page_of() is page_of()

"""The pages as bytes; what is sent of them is in tests/integration/test_pages.py."""

from __future__ import annotations

import json

from mindserve.api.pages.compose import json_element, playground
from mindserve.config.settings import Dialect


def test_nothing_in_json_can_end_its_element() -> None:
    value = {"a": "</script><script>alert(1)</script><!--"}
    assert "<" not in json_element(value)
    assert json.loads(json_element(value)) == value


def test_a_page_knows_how_its_server_streams() -> None:
    pages = {
        (dialect, full_text): playground(dialect, full_text=full_text)
        for dialect in Dialect
        for full_text in (False, True)
    }
    assert len({page.etag for page in pages.values()}) == 4
    assert len({page.policy for page in pages.values()}) == 1
    assert b'"full_text": true' in playground(Dialect.VLLM, full_text=True).body


def test_a_page_is_put_together_once() -> None:
    assert playground(Dialect.VLLM, full_text=False) is playground(Dialect.VLLM, full_text=False)

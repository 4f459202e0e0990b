"""A server with the scripted engine, and a browser that has its playground open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser.chromium import Browser, Tab, chromium
from tests.browser.using import REPLIES
from tests.serving import Live, Model, running, scripted_model


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return scripted_model(tmp_path, REPLIES)


@pytest_asyncio.fixture(loop_scope="module")
async def live(model: Model) -> AsyncIterator[Live]:
    async with running(model) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def browser(process: Browser) -> AsyncIterator[Tab]:
    """Whatever a test does, no script fails and nothing breaks the page's policy."""
    async with process.tab() as tab:
        await tab.size(1440, 900)
        yield tab
        assert tab.complaints == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Tab, live: Live) -> Tab:
    await browser.open(live.url + "/")
    await browser.until("document.getElementById('model').options.length > 0")
    return browser

"""Media beside a message: attached, dropped and pasted, looked at, sent, and kept in the conversation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mindserve.config.settings import MediaSettings, ServeSettings
from mindserve_engine.types import MediaItem
from tests.browser.chromium import CHROMIUM, Tab
from tests.browser.using import COMPLETE, REPLIES, fill, say, text, turns
from tests.media_service import File, Service, decoded, files, media_service
from tests.serving import MODEL, running, scripted_model

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

PNG, WAV, MP4 = (next(file for file in files() if file.name == f"a.{ending}") for ending in ("png", "wav", "mp4"))
NUM_ATTACHED = "document.querySelectorAll('#attached li').length"
NEW_DRAG = (
    "const data = new DataTransfer(); data.items.add(new File(['x'], 'a.png'));"
    " const init = {dataTransfer: data, bubbles: true, cancelable: true};"
)
WRONG = "document.getElementById('attach-wrong')"


@pytest_asyncio.fixture(loop_scope="module")
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """With the files of all kinds in ``root``, where the browser takes them from."""
    model = scripted_model(tmp_path, {"media": True, "replies": REPLIES})
    async with media_service(model, tmp_path / "files") as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Tab, service: Service) -> Tab:
    await opened(browser, service.live.url)
    return browser


async def opened(browser: Tab, url: str) -> None:
    await browser.open(url + "/")
    await browser.until("document.getElementById('model').options.length > 0")


async def choose(page: Tab, *paths: Path) -> None:
    """As the dialogue does that the button opens."""
    found = await page.command("Runtime.evaluate", expression="document.getElementById('file')")
    await page.command("DOM.setFileInputFiles", files=[*map(str, paths)], objectId=found["result"]["objectId"])


async def attach(page: Tab, service: Service, *chosen: File) -> None:
    num = await page.value(NUM_ATTACHED)
    await choose(page, *(service.root / file.name for file in chosen))
    await page.until(f"{NUM_ATTACHED} === {num + len(chosen)}")


async def request_shown(page: Tab) -> Any:
    return json.loads((await text(page, "request")).partition("\n\n")[2])


def seen(service: Service, items: tuple[MediaItem, ...]) -> list[str]:
    """The names of the files that the engine was given."""
    known = {decoded(file, service.media)[:2]: file.name for file in (PNG, WAV, MP4)}
    return [known[item.shape, item.data] for item in items]


@pytest.mark.parametrize("stream", ["true", "false"])
async def test_what_is_attached_is_sent_and_stays_in_the_conversation(page: Tab, service: Service, stream: str) -> None:
    await fill(page, "stream", stream)
    await attach(page, service, PNG, WAV)
    assert await page.value("document.querySelector('#attached img').decode()") is None  # it is an image
    length = "new Promise((done) => { const one = document.querySelector('#attached audio'); one.duration > 0 ?"
    length += " done(one.duration) : one.addEventListener('loadedmetadata', () => done(one.duration)); })"
    assert await page.value(length) == pytest.approx(0.5)
    (draft,) = (await request_shown(page))["messages"]
    assert [part["type"] for part in draft["content"]] == ["image_url", "audio_url"]
    assert draft["content"][1]["audio_url"]["url"].endswith(f"({len(WAV.data_url)} characters)")
    await say(page, "hello")
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.png", "a.wav"]
    assert await page.value(NUM_ATTACHED) == 0
    assert await page.value("document.querySelectorAll('.turn.user .media :is(img, audio)').length") == 2
    assert await turns(page) == ["hello", "Good <b>day</b>"]
    await attach(page, service, MP4)
    await say(page, "two")
    await page.until("document.querySelectorAll('.turn.assistant').length === 2")
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.png", "a.wav", "a.mp4"]
    sent = (await request_shown(page))["messages"]
    assert [part["type"] for part in sent[2]["content"]] == ["video_url", "text"]
    await page.value("document.querySelector('.turn.user .who button').click()")
    await page.value("document.getElementById('send').click()")
    await page.until("document.querySelectorAll('.turn.assistant').length === 3")
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.mp4"]


async def test_what_is_taken_away_is_not_sent(page: Tab, service: Service) -> None:
    await attach(page, service, PNG, WAV)
    assert await page.value("document.querySelector('#attached button').getAttribute('aria-label')") == "remove a.png"
    await page.value("document.querySelector('#attached button').click()")
    assert await page.value(NUM_ATTACHED) == 1
    assert await page.value("document.activeElement.id") == "attach"
    await page.value("document.getElementById('clear').click()")
    assert await page.value(NUM_ATTACHED) == 0
    await attach(page, service, WAV)
    await page.value("document.getElementById('send').click()")  # without a word
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.wav"]


@pytest.mark.parametrize("how", ["drop", "paste"])
async def test_files_come_by_drop_and_by_paste(page: Tab, service: Service, how: str) -> None:
    target, event = {
        "drop": ("turns", "DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"),
        "paste": ("say", "ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})"),
    }[how]
    await page.value(
        f"(() => {{ const data = new DataTransfer();"
        f" const bytes = Uint8Array.from(atob({PNG.base64!r}), (one) => one.charCodeAt(0));"
        f" data.items.add(new File([bytes], 'nameless', {{type: 'image/png'}}));"
        f" window.wasOurs = !document.getElementById({target!r}).dispatchEvent(new {event}); }})()"
    )
    await page.until(f"{NUM_ATTACHED} === 1")
    assert await page.value("window.wasOurs")  # the browser does not open it instead
    await say(page, "hello")
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.png"]


@pytest.mark.parametrize("place", ["header", "#parameters"])
async def test_a_file_dropped_elsewhere_does_not_replace_the_page(page: Tab, service: Service, place: str) -> None:
    """A browser opens the file unless the page says what becomes of it while it is dragged, and when it is let go."""
    await page.value(
        "window.said = []; for (const kind of ['dragover', 'drop'])"
        " window.addEventListener(kind, (one) => said.push([kind, one.defaultPrevented, one.dataTransfer.dropEffect]))"
    )
    await drag(page, place, service.root / PNG.name)
    said = await page.value("said")
    assert said == [["dragover", True, "none"]] * len(said) != []  # so there is no drop
    assert await page.value("document.querySelector('.dropping')") is None
    await page.value(f"{NEW_DRAG} document.querySelector({place!r}).dispatchEvent(new DragEvent('drop', init))")
    assert (await page.value("said"))[-1][:2] == ["drop", True]
    assert await page.value(NUM_ATTACHED) == 0


async def test_a_file_that_is_dragged_to_the_conversation_is_attached(page: Tab, service: Service) -> None:
    await drag(page, "#talk", service.root / PNG.name)
    await page.until(f"{NUM_ATTACHED} === 1")
    await say(page, "hello")
    await page.until(COMPLETE)
    assert seen(service, service.asked[-1].media) == ["a.png"]


async def drag(page: Tab, place: str, file: Path) -> None:
    """Into the middle of an element, and let go there."""
    middle = "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
    x, y = await page.value(f"{middle}(document.querySelector({place!r}).getBoundingClientRect())")
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        await page.command("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)


async def test_what_cannot_be_sent_is_told_with_its_limit(browser: Tab, tmp_path: Path) -> None:
    model = scripted_model(tmp_path, {"media": True, "replies": REPLIES})
    limits = MediaSettings(max_image_bytes=len(PNG.data), max_audio_bytes=len(WAV.data) - 1, max_parts=2)
    settings = ServeSettings(model_name=MODEL, media=limits, max_request_bytes=3 * len(PNG.data))
    for name, data in (
        ("a.png", PNG.data),
        ("a.wav", WAV.data),
        ("b.txt", b"x"),
        ("c.png", b""),
        ("d.mp4", PNG.data * 2),
    ):
        (tmp_path / name).write_bytes(data)
    async with running(model, settings) as live:
        await opened(browser, live.url)
        for name, words in (
            ("a.wav", "audio files may have"),
            ("a.wav", "(maxAudioSize)"),
            ("b.txt", "b.txt is none of jpg,"),
            ("c.png", "c.png is empty."),
        ):
            await choose(browser, tmp_path / name)
            await browser.until(f"{WRONG}.textContent.includes({words!r})")
        assert await browser.value(NUM_ATTACHED) == 0
        await choose(browser, tmp_path / "a.png")
        await browser.until(f"{NUM_ATTACHED} === 1")
        assert await browser.value(f"{WRONG}.hidden")  # what was wrong is over
        await choose(browser, tmp_path / "d.mp4")
        await browser.until(f"{WRONG}.textContent.includes('(maxRequestLength)')")
        await choose(browser, tmp_path / "a.png", tmp_path / "a.png")
        await browser.until(f"{WRONG}.textContent.includes('a request takes 2 (maxMediaParts)')")
        assert await browser.value(NUM_ATTACHED) == 2
        assert not any(url.startswith(f"{live.url}/v1/chat") for url in browser.requested)


async def test_a_model_of_text_refuses_in_its_own_words(browser: Tab, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG.data)
    async with running(scripted_model(tmp_path, REPLIES)) as live:
        await opened(browser, live.url)
        await choose(browser, tmp_path / "a.png")
        await browser.until(f"{NUM_ATTACHED} === 1")
        await say(browser, "hello")
        await browser.until("!document.getElementById('error').hidden")
        assert "messages[0].content[0].type: image input is not available" in await text(browser, "error")


@pytest.mark.parametrize("width", [320, 1440])
async def test_no_width_scrolls_sideways(page: Tab, service: Service, width: int) -> None:
    await page.size(width, 800)
    await attach(page, service, *files())
    assert await page.value("document.documentElement.scrollWidth <= innerWidth")
    await say(page, "hello")
    await page.until(COMPLETE)
    assert await page.value("document.documentElement.scrollWidth <= innerWidth")
    assert await page.value(
        "(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(document.getElementById('turns'))"
    )

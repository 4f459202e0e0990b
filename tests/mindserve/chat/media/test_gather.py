"""Gathering: order, several at a time, the budget of bytes, and that nothing stays behind however it ends."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.chat.media import gather as gather_module
from mindserve.chat.media.budget import ByteBudget
from mindserve.chat.media.faults import Abandoned, MediaFault
from mindserve.chat.media.fetch import Fetcher
from mindserve.chat.media.gather import MediaSource, gather
from mindserve.chat.media.inline import Inline
from mindserve.chat.media.limits import PARALLEL_FETCHES, MediaLimits, SizeLimit, media_limits, storage_figures
from mindserve.chat.media.refs import MediaPart, MediaRef, media_refs
from mindserve.config.settings import MIB, DecodeSettings, MediaSettings
from mindserve.errors import RefusalKind, RequestRefused
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.web import PUBLIC, Web, running_web

Limits = Callable[..., MediaLimits]
MakeSource = Callable[..., MediaSource]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with running_web({"media.test": [PUBLIC]}) as running:
        yield running


@pytest.fixture
async def make_source(web: Web, limits: Limits) -> AsyncIterator[MakeSource]:
    made: list[MediaSource] = []

    def make(max_in_flight_bytes: int = 10 * MIB, **settings: Any) -> MediaSource:
        some = limits(allowed_hosts=("media.test",), **settings)
        budget = ByteBudget(max_in_flight_bytes)
        made.append(MediaSource(some, budget, Fetcher(some, resolve=web.resolve, dialler=web, ssl_context=NO_TLS)))
        return made[-1]

    yield make
    for source in made:
        assert source.budget.num_held == 0
        source.close()


def refs_of(source: MediaSource, *texts: str) -> list[MediaRef]:
    return media_refs([MediaPart(0, j, "image_url", "image_url", text) for j, text in enumerate(texts)], source.limits)


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the budget tells nobody of its changes
        await asyncio.sleep(0)


async def test_every_origin_in_order(make_source: MakeSource, root: Path) -> None:
    (root / "a.png").write_bytes(b"from a file")
    source = make_source()
    audio = MediaPart(3, 1, "input_audio", "input_audio.data", base64.b64encode(b"sound").decode())
    refs = refs_of(source, "http://media.test/ok", "a.png", data_url(b"inline"), "http://media.test/chunks")
    refs += media_refs([audio], source.limits)
    async with gather(refs, source) as media:
        assert [bytes(item.data) for item in media] == [b"hello", b"from a file", b"inline", b"abcde", b"sound"]
        assert [(item.kind, item.i, item.j) for item in media[3:]] == [
            (MediaKind.IMAGE, 0, 3),
            (MediaKind.AUDIO, 3, 1),
        ]
        assert media[4].field == "messages[3].content[1].input_audio.data"
        assert source.budget.num_held == sum(len(item.data) for item in media)
    assert source.budget.num_held == 0


async def test_nothing_to_gather(make_source: MakeSource) -> None:
    async with gather([], make_source()) as media:
        assert media == []


async def test_order_is_kept_when_the_last_comes_first(make_source: MakeSource, web: Web) -> None:
    """Each host's answer waits for the next one's: they are asked at the same time."""
    source = make_source()
    refs = refs_of(source, *(f"http://media.test/turn/{number}" for number in range(3)))
    async with gather(refs, source) as media:
        assert [bytes(item.data) for item in media] == [b"/turn/0", b"/turn/1", b"/turn/2"]


async def test_a_few_are_fetched_at_a_time(make_source: MakeSource, web: Web) -> None:
    source = make_source()
    refs = refs_of(source, *["http://media.test/hang"] * (PARALLEL_FETCHES + 3))
    going = asyncio.create_task(gather(refs, source).__aenter__())
    await until(lambda: len(web.requests) == PARALLEL_FETCHES)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(web.dialled) == PARALLEL_FETCHES
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_one_that_cannot_be_had_ends_all(make_source: MakeSource, web: Web) -> None:
    source = make_source()
    refs = refs_of(source, "http://media.test/hang-in-body", data_url(b"x" * 100), "http://media.test/missing")
    with pytest.raises(RequestRefused, match="status 404") as caught:
        await gather(refs, source).__aenter__()
    assert caught.value.field == "messages[0].content[2].image_url"
    assert caught.value.kind is RefusalKind.VALIDATION
    assert source.budget.num_held == 0
    await web.idle()


@pytest.mark.parametrize(("text", "words"), [
    ("nope.png", "names no file that can be read"),
    ("data:image/png;base64,QU=D", "is not Base64"),
    ("http://media.test/empty", "holds no data"),
    ("http://media.test/endless", " bytes or more; at most 1048576 are allowed (setting maxImageSize)"),
])  # fmt: skip
async def test_faults_name_the_part(make_source: MakeSource, text: str, words: str) -> None:
    source = make_source(max_image_bytes=MIB)
    with pytest.raises(RequestRefused) as caught:
        await gather(refs_of(source, text), source).__aenter__()
    assert caught.value.message.startswith("messages[0].content[0].image_url ")
    assert words in caught.value.message
    assert source.budget.num_held == 0


async def test_the_log_alone_knows_the_reason(
    make_source: MakeSource, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "link.png").symlink_to("/etc/passwd")
    source = make_source()
    told = []
    with caplog.at_level("INFO"):
        for name in ("link.png", "nope.png"):
            with pytest.raises(RequestRefused) as caught:
                await gather(refs_of(source, name), source).__aenter__()
            told.append(caught.value.message)
    assert told[0] == told[1]
    reasons = [record.mindserve_fields["reason"] for record in caplog.records]  # type: ignore[attr-defined]
    assert len(set(reasons)) == 2


async def test_the_bytes_of_a_request_together(make_source: MakeSource, root: Path) -> None:
    (root / "a.png").write_bytes(bytes(60))
    source = make_source(max_total_bytes=119)
    async with gather(refs_of(source, "a.png", data_url(bytes(59))), source) as media:
        assert len(media) == 2
    with pytest.raises(
        RequestRefused, match=r"to 120 bytes together; at most 119 are allowed \(setting maxMediaTotal\)"
    ) as caught:
        await gather(refs_of(source, "a.png", "a.png"), source).__aenter__()
    assert caught.value.kind is RefusalKind.VALIDATION


async def test_no_room_for_more(make_source: MakeSource, root: Path) -> None:
    (root / "a.png").write_bytes(bytes(1500))
    source = make_source(max_total_bytes=2000, max_in_flight_bytes=2000)
    async with gather(refs_of(source, "a.png"), source):
        for text in ("a.png", data_url(bytes(501)), "http://media.test/hang-in-body"):
            with pytest.raises(RequestRefused, match="setting maxMediaInFlight") as caught:
                await gather(refs_of(source, text), source).__aenter__()
            assert caught.value.kind is RefusalKind.OVERLOADED
            assert caught.value.retry_after_s is not None
            assert source.budget.num_held == 1500
        async with gather(refs_of(source, data_url(bytes(500))), source) as media:
            assert len(media) == 1
    assert source.budget.num_held == 0


async def test_a_client_that_leaves_while_a_file_is_fetched(make_source: MakeSource, web: Web) -> None:
    source = make_source()
    refs = refs_of(source, "http://media.test/hang-in-body", data_url(b"x" * 100))
    going = asyncio.create_task(gather(refs, source).__aenter__())
    await until(lambda: source.budget.num_held == 1100)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert source.budget.num_held == 0
    await web.events["left"].wait()
    await web.idle()


async def test_files_that_hang_hold_up_no_base64(
    make_source: MakeSource, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the folder is mounted from a machine that is gone."""
    answers = threading.Event()

    def hang(*_: Any, **__: Any) -> bytearray:
        answers.wait()
        return bytearray(b"at last")

    monkeypatch.setattr(gather_module, "read_local", hang)
    source = make_source()
    reading = asyncio.create_task(gather(refs_of(source, *["a.png"] * 20), source).__aenter__())
    async with gather(refs_of(source, data_url(b"inline")), source) as media:
        assert [bytes(item.data) for item in media] == [b"inline"]
    reading.cancel()
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_client_that_leaves_while_a_name_is_looked_up(make_source: MakeSource, web: Web) -> None:
    asked = asyncio.Event()

    async def hang() -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    web.names["media.test"] = hang
    source = make_source()
    going = asyncio.create_task(gather(refs_of(source, "http://media.test/ok"), source).__aenter__())
    await asked.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_a_thread_stops_when_its_client_has_left(
    make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, stopped = threading.Event(), threading.Event()

    def decode(inline: Inline, is_abandoned: Callable[[], bool]) -> bytearray:
        started.set()
        while not is_abandoned():
            pass
        stopped.set()
        raise Abandoned

    monkeypatch.setattr(gather_module, "decode_inline", decode)
    source = make_source()
    going = asyncio.create_task(gather(refs_of(source, data_url(b"x" * 100)), source).__aenter__())
    await until(started.is_set)
    assert source.budget.num_held == 100
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert source.budget.num_held == 0
    await until(stopped.is_set)


async def test_an_error_in_the_block_releases(make_source: MakeSource) -> None:
    source = make_source()

    async def fail() -> None:
        async with gather(refs_of(source, data_url(b"x" * 100)), source):
            assert source.budget.num_held == 100
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert source.budget.num_held == 0


class _Text(str):
    """A text that a weak reference can watch."""


async def test_base64_is_let_go_when_it_is_decoded(make_source: MakeSource, web: Web) -> None:
    """While another item is still being fetched, and of course while the block runs."""
    source = make_source()
    texts = [_Text(base64.b64encode(b"x" * 300).decode())]
    watched = weakref.ref(texts[0])
    refs = refs_of(source, "http://media.test/turn/1")
    refs.append(MediaRef(MediaKind.IMAGE, Inline(texts.pop()), SizeLimit(1000, "x"), 0, 1, "f"))
    going = asyncio.create_task(gather(refs, source).__aenter__())
    await until(lambda: watched() is None)
    assert refs == []
    await web.events["asked /turn/1"].wait()
    web.events["answered 2"].set()
    assert len(await going) == 2


def test_a_lease_that_is_over_gets_nothing() -> None:
    budget = ByteBudget(100)
    lease = budget.lease(SizeLimit(50, "maxMediaTotal"))
    lease.take(30)
    with pytest.raises(MediaFault, match="bytes together; at most 50 are allowed"):
        lease.take(21)
    other = budget.lease(SizeLimit(100, "maxMediaTotal"))
    with pytest.raises(RequestRefused):
        other.take(71)
    other.take(70)
    assert budget.num_held == 100
    lease.release()
    lease.release()
    assert (lease.is_over(), budget.num_held) == (True, 70)
    with pytest.raises(Abandoned):
        lease.take(1)
    other.release()
    assert budget.num_held == 0


def test_threads_share_a_budget() -> None:
    budget = ByteBudget(10**9)

    def work() -> None:
        for _ in range(2000):
            lease = budget.lease(SizeLimit(10, "x"))
            lease.take(7)
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.num_held == 0


def test_what_the_document_says_of_disk_space() -> None:
    """Line 30: 512 MB and 1000 requests make 750 GB."""
    figures = storage_figures(MediaSettings(), 1000)
    assert (figures["disk_mib"], figures["disk_by_rule_mib"]) == (0, 750 * 1024)
    assert storage_figures(MediaSettings(max_video_bytes=MIB), 10)["disk_by_rule_mib"] == 600


def test_what_the_memory_of_media_is_told_to_be() -> None:
    """A copy of an item lies between the server and each process that decodes; all of them count towards the budget."""
    decode = DecodeSettings(workers=3, memory_bytes=600 * MIB)
    settings = MediaSettings(max_in_flight_bytes=2000 * MIB, max_video_bytes=500 * MIB, decode=decode)
    figures = storage_figures(settings, 10)
    assert [figures[f"{name}_mib"] for name in ("memory", "passing", "decoders")] == [2000, 1500, 1800]
    few = MediaSettings(max_in_flight_bytes=1000 * MIB, decode=decode)
    assert storage_figures(few, 10)["passing_mib"] == 1000


def test_limits_of_the_settings() -> None:
    found = media_limits(MediaSettings(root="/m/", allowed_networks=("10.0.0.0/8",), allowed_hosts=("a.test",)))
    assert (found.root, found.allowed_hosts, len(found.allowed_networks)) == ("/m", {"a.test"}, 1)
    assert {name: limit.max_bytes // MIB for name, limit in found.sizes.items()} == {
        "image_url": 40,
        "video_url": 512,
        "audio_url": 40,
        "input_audio": 20,
    }

"""What a server holds does not grow with the items it has taken and refused."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import gc
import os
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from mindserve.chat.media.budget import ByteBudget
from mindserve.chat.media.intake import MediaIntake
from mindserve.chat.media.refs import MediaPart, media_refs
from mindserve.config.settings import DecodeSettings, MediaSettings
from mindserve.errors import RequestRefused
from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.media_fuzz import CHAT, body_of, mutation
from tests.media_mutations import seeds
from tests.media_service import HOST, first, media_service
from tests.media_service import part as image
from tests.mindserve.chat.media.decoding import makers
from tests.serving import MODEL, scripted_model

NUM_ITEMS, NUM_WARM = 2000, 500
KEPT_BYTES = 100_000
"""Of Python's objects, for caches that fill and tables that double: less than 70 bytes an item."""
RESIDENT_KB = 4_000
WORKER_KB = 20_000
"""A decoder's libraries keep what the largest file so far took."""


def part(number: int, root: Path) -> MediaPart:
    """Whole files and mutated ones in turns; as Base64 and as names of files."""
    whole = seeds()[number // 2 % len(seeds())]
    data = mutation(number, 8)[1] if number % 2 else whole.data
    kind = seeds()[number % len(seeds())] if number % 2 else whole
    name = f"{kind.kind}_url"
    if number % 3:
        return MediaPart(0, 0, name, name, f"data:{kind.mime};base64,{base64.b64encode(data).decode()}")
    ending = {"image": "png", "video": "mp4", "audio": "wav"}[kind.kind]
    (root / f"a.{ending}").write_bytes(data)
    return MediaPart(0, 0, name, name, f"a.{ending}")


async def take(intake: MediaIntake, one: MediaPart) -> str:
    lease = intake.lease()
    try:
        await intake.take(media_refs([one], intake.limits), makers.MODEL, lease)
    except RequestRefused as refusal:
        return "refused" if refusal.message.startswith("messages[0].content[0].") else refusal.message
    finally:
        lease.release()
    return "taken"


def held() -> dict[str, int]:
    """By this process, its garbage and what the allocator keeps for later aside."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    me = psutil.Process()
    return {
        "traced": tracemalloc.get_traced_memory()[0],
        "resident": me.memory_info().rss // 1024,
        "workers": max(child.memory_info().rss for child in me.children()) // 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names alone
        "threads": threading.active_count(),
    }


@contextmanager
def tracing() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


BROKEN = b"\x89PNG\r\n\x1a\n" + bytes(300_000)
INLINE = f"data:image/png;base64,{base64.b64encode(BROKEN).decode()}"
GOOD = first(MediaKind.IMAGE).data_url
NUM_REFUSED = 20


@pytest.mark.parametrize(
    "places",
    [[INLINE], ["broken.png"], [f"http://{HOST}/broken.png"], [f"http://{HOST}/endless"], [GOOD, INLINE, GOOD]],
    ids=["inline", "local", "remote", "endless", "beside others"],
)
async def test_the_bytes_of_a_refused_item_are_let_go_at_once(tmp_path: Path, places: list[str]) -> None:
    """Without waiting for the collector of garbage, which does not know how many bytes hang on a cycle."""
    model = scripted_model(tmp_path, {"replies": REPLIES, "media": True})
    async with (
        media_service(model, tmp_path / "files", max_image_bytes=2**20) as service,
        httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client,
    ):
        (service.root / "broken.png").write_bytes(BROKEN)
        service.web.files["/broken.png"] = BROKEN
        body = body_of([image(MediaKind.IMAGE, place) for place in places], MODEL)

        async def refuse() -> None:
            response = await client.post(CHAT, json=body)
            assert response.status_code == 422, response.text

        await refuse()
        with tracing(), no_collection():
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(NUM_REFUSED):
                await refuse()
            grown = tracemalloc.get_traced_memory()[0] - before
        assert grown < NUM_REFUSED * len(BROKEN) / 10


@contextmanager
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_two_thousand_hostile_and_ordinary_items_leave_nothing_behind(tmp_path: Path) -> None:
    budget = ByteBudget(2**30)
    patient = DecodeSettings(timeout_s=3600.0, cpu_time_s=60)
    intake = MediaIntake(MediaSettings(root=str(tmp_path), decode=patient), budget)
    await intake.start(makers.MODEL)
    outcomes: Counter[str] = Counter()

    async def take_all(numbers: range) -> None:
        left = iter(numbers)

        async def some() -> None:
            for number in left:
                outcomes[await take(intake, part(number, tmp_path))] += 1

        await asyncio.gather(some(), some())

    try:
        await take_all(range(NUM_WARM))
        with tracing():
            before = held()
            await take_all(range(NUM_WARM, NUM_ITEMS))
            after = held()
    finally:
        await intake.close()
    assert_bounded(before, after)
    assert intake.tally.num_replaced == budget.num_held == 0
    assert set(outcomes) == {"taken", "refused"}
    assert min(outcomes.values()) > NUM_ITEMS // 5


def assert_bounded(before: dict[str, int], after: dict[str, int]) -> None:
    grown: dict[str, Any] = {name: value - before[name] for name, value in after.items()}
    assert grown["traced"] < KEPT_BYTES, grown
    assert grown["resident"] < RESIDENT_KB, grown
    assert grown["workers"] < WORKER_KB, grown
    assert grown["descriptors"] == 0, grown
    assert grown["threads"] <= 4, grown  # one after the other, as they are needed

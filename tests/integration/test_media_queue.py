"""Many items at a time: they wait for their turn, as long as their request may."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2

from mindserve.config.settings import DecodeSettings, ServeSettings
from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.media_service import Service, files, first, media_service, part, turn
from tests.serving import MODEL, chat_body, eventually, is_idle, scripted_model

CHAT = "/v1/chat/completions"
NUM_REQUESTS = 12
NUM_PARTS = 20


@asynccontextmanager
async def serving(folder: Path, *, workers: int = 2, **settings: float) -> AsyncIterator[Service]:
    model = scripted_model(folder, {"replies": REPLIES, "media": True})
    serve = ServeSettings(model_name=MODEL, **settings)
    decode = DecodeSettings(workers=workers, timeout_s=3600.0)
    async with media_service(model, folder / "files", serve=serve, decode=decode) as service:
        await service.live.server.media.start(service.media)
        yield service


@contextmanager
def stopped(service: Service) -> Iterator[None]:
    """The processes that decode stand still."""
    pool = service.live.server.media._pool
    assert pool is not None
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def figure(service: Service, name: str, **labels: str) -> float:
    value = service.live.server.metrics.registry.get_sample_value(name, {"model_name": MODEL, **labels})
    assert value is not None
    return value


async def test_requests_of_many_items_wait_for_their_turn(tmp_path: Path) -> None:
    """All at once; those of one item do not wait for all of the others'."""
    image = first(MediaKind.IMAGE)
    crowded = chat_body(messages=[turn(*[part(image.kind, image.name)] * NUM_PARTS)])
    single = chat_body(messages=[turn(part(image.kind, image.name))])
    async with (
        serving(tmp_path) as service,
        httpx2.AsyncClient(base_url=service.live.url, timeout=120, limits=httpx2.Limits(max_connections=99)) as client,
    ):
        with stopped(service):
            waiting = [asyncio.create_task(client.post(CHAT, json=crowded)) for _ in range(NUM_REQUESTS)]
            await eventually(lambda: figure(service, "num_media_waiting") == NUM_REQUESTS * NUM_PARTS - 2)
            assert figure(service, "num_media_decoding") == 2
            late = asyncio.create_task(client.post(CHAT, json=single))
            await eventually(lambda: figure(service, "num_media_waiting") == NUM_REQUESTS * NUM_PARTS - 1)
        ended = [late, *waiting]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        await late
        assert not all(task.done() for task in waiting)
        assert {(await task).status_code for task in ended} == {200}
        num_items = NUM_REQUESTS * NUM_PARTS + 1
        assert figure(service, "media_decode_seconds_count") == num_items
        assert figure(service, "num_media_waiting") == figure(service, "num_media_decoding") == 0
        assert figure(service, "media_workers_replaced_total") == 0


async def test_they_wait_no_longer_than_their_deadline(tmp_path: Path) -> None:
    image = first(MediaKind.IMAGE)
    body = chat_body(messages=[turn(part(image.kind, image.name))])
    async with (
        serving(tmp_path, workers=1, e2e_timeout_s=1.0) as service,
        httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client,
    ):
        with stopped(service):
            answers = await asyncio.gather(*(client.post(CHAT, json=body) for _ in range(3)))
        assert [answer.status_code for answer in answers] == [500] * 3
        assert "e2eTimeout" in answers[0].text
        await eventually(lambda: is_idle(service.live) and figure(service, "num_media_waiting") == 0)
        await eventually(lambda: figure(service, "num_media_decoding") == 0)
        assert (await client.post(CHAT, json=body)).status_code == 200


async def test_refusals_are_counted_by_kind(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client:
        for kind, name in ((MediaKind.IMAGE, "none.png"), (MediaKind.VIDEO, "broken.mp4"), (MediaKind.AUDIO, "a.wav")):
            (service.root / "broken.mp4").write_bytes(b"no video")
            await client.post(CHAT, json=chat_body(messages=[turn(part(kind, name))]))
        counted = {kind: figure(service, "media_refused_total", kind=kind) for kind in MediaKind}
        assert counted == {MediaKind.IMAGE: 1, MediaKind.VIDEO: 1, MediaKind.AUDIO: 0}
        assert "media_refused_total" in (await client.get("/metrics")).text


async def test_a_broken_part_costs_no_process_of_those_beside_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client:
        (service.root / "broken.png").write_bytes(b"no image")
        beside = [part(file.kind, file.name) for file in files()]
        for place in range(len(beside)):
            parts = [*beside[:place], part(MediaKind.IMAGE, "broken.png"), *beside[place:]]
            answer = await client.post(CHAT, json=chat_body(messages=[turn(*parts)]))
            assert answer.status_code == 422
            assert f"messages[0].content[{place}]" in answer.json()["error"]
        assert figure(service, "media_workers_replaced_total") == 0

"""Hostile files over HTTP: each gets its answer, and the server goes on as before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from mindserve.config.settings import DecodeSettings
from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.media_service import Service, files, media_service, part, text, turn
from tests.mindserve.chat.media.decoding.hostile import CASES, Case
from tests.serving import chat_body, is_idle, scripted_model

CHAT = "/v1/chat/completions"
ENDINGS = {MediaKind.IMAGE: "png", MediaKind.VIDEO: "mp4", MediaKind.AUDIO: "wav"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("media")
    model = scripted_model(folder, {"replies": REPLIES, "media": True})
    patient = DecodeSettings(timeout_s=3600.0)
    async with media_service(model, folder / "files", decode=patient) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.live.url, timeout=120) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
async def test_a_hostile_file_gets_its_answer(service: Service, client: httpx2.AsyncClient, case: Case) -> None:
    name = f"hostile.{ENDINGS[case.kind]}"
    (service.root / name).write_bytes(data := case.make())
    response = await client.post(CHAT, json=chat_body(messages=[turn(text("?"), part(case.kind, name))]))
    if isinstance(case.answer, str):
        assert response.status_code == 422
        error = response.json()["error"]
        assert f"messages[0].content[1].{case.kind}_url" in error
        assert (case.answer if data else "holds no data") in error
        assert str(service.root) not in error
    else:
        assert response.status_code == 200
        assert service.asked[-1].media[0].shape == case.answer
    assert service.live.server.held_bytes.num_held == 0
    assert is_idle(service.live)


async def test_ordinary_files_are_taken_afterwards(service: Service, client: httpx2.AsyncClient) -> None:
    for file in files():
        response = await client.post(CHAT, json=chat_body(messages=[turn(part(file.kind, file.name))]))
        assert response.status_code == 200

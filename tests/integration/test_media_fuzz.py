"""Mutated files over HTTP: an answer, or a refusal that names the part; ``tests.media_fuzz`` tries thousands more."""

from __future__ import annotations

import os
from pathlib import Path

import httpx2

from mindserve.config.settings import DecodeSettings
from tests.integration.conftest import REPLIES
from tests.media_fuzz import CHAT, body_of, mutated_groups, part, post_all
from tests.media_mutations import seeds
from tests.media_service import media_service
from tests.serving import MODEL, is_idle, scripted_model

NUM_FILES = 126


async def test_mutated_files_get_an_answer_or_a_refusal(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, {"replies": REPLIES, "media": True})
    patient = DecodeSettings(timeout_s=3600.0, cpu_time_s=60)
    async with media_service(model, tmp_path / "files", decode=patient) as service:
        await service.live.server.media.start(service.media)
        outcomes = await post_all(service.live.url, MODEL, mutated_groups(range(NUM_FILES), seed=5), os.getpid())
        assert [fault for fault in outcomes.faults if "memory" not in fault] == []  # of this process it tells nothing
        assert set(outcomes.counts) == {"answered", "refused"}
        assert service.live.server.media.tally.num_replaced == 0
        assert service.live.server.held_bytes.num_held == 0
        assert is_idle(service.live)
        async with httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client:
            for seed in seeds():
                body = body_of([part(seed.kind, seed.mime, seed.data)], MODEL)
                assert (await client.post(CHAT, json=body)).status_code == 200

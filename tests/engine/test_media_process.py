"""Media through an engine process of its own: as the server sends them, beside text, given up, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from mindserve_engine.interface import EngineUnavailable, RequestInvalid
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import Capability, GenerationRequest, SamplingParams
from tests.engine.drive import assert_continues
from tests.engine.media import NUM_TOKENS, PairOf
from tests.media_prompts import Prompt


def ask(name: str, asked: Prompt) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_token_ids=asked.token_ids,
        max_tokens=NUM_TOKENS,
        sampling=SamplingParams(temperature=0.0),
        ignore_eos=True,
        media=asked.media,
    )


async def answer(engine: NativeEngine, request: GenerationRequest) -> list[int]:
    return [token async for event in await engine.admit(request) for token in event.token_ids]


@pytest.mark.timeout(600)
async def test_media_cross_to_the_process(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_vl")
    options = EngineOptions(
        model_path=pair.path, dtype="float32", block_size=16, kv_memory_gb=0.05, num_threads=1, max_media_mb=2
    )
    engine = NativeEngine(options)
    try:
        await engine.start()
        assert Capability.MEDIA in engine.info.capabilities
        assert engine.info.media == pair.ours.info.media
        requests = [ask(str(number), one) for number, one in enumerate(pair.prompts)]
        found = await asyncio.gather(*(answer(engine, request) for request in requests))
        assert_continues(list(found), pair.expected)
        moved = msgspec.structs.replace(pair.prompts[1].media[0], start=3)
        with pytest.raises(RequestInvalid, match=r"media\[0\]: needs its placeholder"):
            await engine.admit(msgspec.structs.replace(requests[1], media=(moved,)))
        given_up = await engine.admit(msgspec.structs.replace(requests[7], request_id="given up"))
        given_up.abort()
        assert_continues([await answer(engine, requests[6])], [pair.expected[6]])
        await _fill(engine, ask("large", pair.prompts[7]))
    finally:
        await engine.close()


async def _fill(engine: NativeEngine, request: GenerationRequest) -> None:
    """As many as have room are taken; when one has ended, there is room again."""
    size = sum(len(item.data) for item in request.media)
    num_fitting = 2 * 2**20 // size
    taken = [
        await engine.admit(msgspec.structs.replace(request, request_id=f"large {number}"))
        for number in range(num_fitting)
    ]
    with pytest.raises(EngineUnavailable, match="media of other requests take"):
        await engine.admit(request)
    for generation in taken:
        async for _ in generation:
            pass
    await answer(engine, request)


def test_more_media_than_the_engine_ever_holds(tmp_path: Path, media_pair: PairOf) -> None:
    engine = NativeEngine(EngineOptions(model_path=tmp_path, max_media_mb=0))
    with pytest.raises(RequestInvalid, match="the engine holds at most 0"):
        engine._check_media_room(ask("r", media_pair("qwen2_vl").prompts[1]))

"""The server over the native engine and models that see or hear: a file over HTTP gives what its pixels or samples give
the engine itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import numpy as np
import pytest

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import GenerationRequest, MediaItem, MediaKind, SamplingParams
from tests import media_prompts
from tests import tiny_media_models as tiny
from tests.decoding import whole_text
from tests.media_service import File, Service, decoded, files, media_service, part, text, turn
from tests.serving import Model, chat_body

NUM_TOKENS = 12
AROUND = {
    MediaKind.IMAGE: ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"),
    MediaKind.VIDEO: ("<|vision_start|>", "<|video_pad|>", "<|vision_end|>"),
    MediaKind.AUDIO: ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
}
SEEING = tuple(file for file in files() if file.kind is not MediaKind.AUDIO)
HEARING = tuple(file for file in files() if file.kind is MediaKind.AUDIO)


@asynccontextmanager
async def native(name: str, folder: Path) -> AsyncIterator[Service]:
    tiny.build(name, folder)
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
    async with media_service(Model(NativeEngine(options), load_tokenizer(folder)), folder / "files") as service:
        yield service


def item_of(file: File, service: Service) -> MediaItem:
    """What the server should make of the file, by a way of its own."""
    shape, data, seconds_per_frame = decoded(file, service.media)
    values = np.frombuffer(data, np.float32 if file.kind is MediaKind.AUDIO else np.uint8).reshape(shape)
    return media_prompts.item(values, service.media, seconds_per_frame=seconds_per_frame)


async def engine_answer(service: Service, asked: media_prompts.Prompt, request_id: str) -> str:
    """Of the engine, asked beside the server."""
    request = GenerationRequest(
        request_id=request_id,
        prompt_token_ids=asked.token_ids,
        media=asked.media,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        sampling=SamplingParams(temperature=0),
    )
    generation = await service.live.engine.admit(request)
    tokens = [token_id async for event in generation for token_id in event.token_ids]
    assert len(tokens) == NUM_TOKENS
    return whole_text(service.live.server.tokenizer, tokens, skip_special_tokens=False)


def body_of(*parts: dict[str, Any]) -> dict[str, Any]:
    greedy = {"temperature": 0, "ignore_eos": True, "max_tokens": NUM_TOKENS, "skip_special_tokens": False}
    return chat_body(messages=[turn(*parts)], **greedy)


def prompt_of(service: Service, parts: Sequence[str | MediaItem]) -> media_prompts.Prompt:
    """The template's text, tokenised as ever, with placeholders in the numbers that the items want."""

    def ids(written: str) -> list[int]:
        encoded: list[int] = service.live.server.tokenizer.backend.encode(written, add_special_tokens=False).ids
        return encoded

    token_ids, media = ids("<|im_start|>user\n"), []
    for one in parts:
        if isinstance(one, str):
            token_ids += ids(one)
            continue
        before, pad, after = AROUND[one.kind]
        token_ids += ids(before)
        media.append(msgspec.structs.replace(one, start=len(token_ids)))
        token_ids += ids(pad * one.num_tokens + after)
    return media_prompts.Prompt(token_ids + ids("<|im_end|>\n<|im_start|>assistant\n"), tuple(media))


async def check(service: Service, client: httpx2.AsyncClient, number: int, *parts: str | File) -> str:
    """The answer, which is the engine's own."""
    asked = prompt_of(service, [one if isinstance(one, str) else item_of(one, service) for one in parts])
    expected = await engine_answer(service, asked, f"by itself {number}")
    body = body_of(*(text(one) if isinstance(one, str) else part(one.kind, one.data_url) for one in parts))
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert service.asked[-1].prompt_token_ids == asked.token_ids
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["usage"]["prompt_tokens"] == len(asked.token_ids)
    return expected


@pytest.mark.parametrize(("name", "given"), [("qwen2_vl", SEEING), ("qwen2_audio", HEARING)], ids=["sees", "hears"])
async def test_files_over_http_are_what_the_engine_is_given(name: str, given: tuple[File, ...], tmp_path: Path) -> None:
    async with native(name, tmp_path) as service, httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client:
        answers = [await check(service, client, number, "What is it? ", file) for number, file in enumerate(given)]
        assert len(set(answers)) > 1
        several = await check(service, client, 100, given[0], "and", given[-1], "are two things")
        again = body_of(
            part(given[0].kind, given[0].name),
            text("and"),
            part(given[-1].kind, given[-1].name),
            text("are two things"),
        )
        plain = chat_body(temperature=0, ignore_eos=True, max_tokens=NUM_TOKENS)
        responses = await asyncio.gather(
            *(client.post("/v1/chat/completions", json=one) for one in (again, plain, again))
        )
        contents = [response.json()["choices"][0]["message"]["content"] for response in responses]
        assert (contents[0], contents[2]) == (several, several)
        n = await client.post("/v1/chat/completions", json={**again, "use_beam_search": True, "n": 2})
        assert len(n.json()["choices"]) == 2


async def test_a_kind_that_the_model_does_not_take_is_refused(tmp_path: Path) -> None:
    async with native("qwen2_audio", tmp_path) as service, httpx2.AsyncClient(base_url=service.live.url) as client:
        response = await client.post(
            "/v1/chat/completions", json=body_of(part(MediaKind.IMAGE, "http://media.test/a.png"))
        )
        assert response.status_code == 422
        assert "messages[0].content[0].type: image input" in response.json()["error"]
        assert not service.web.looked_up

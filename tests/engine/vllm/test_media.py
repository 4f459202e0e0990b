"""Images, videos and recordings on vLLM, in float32: token for token what transformers' ``generate`` gives, beside
requests of text, from a cold cache and from a warm one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

pytest.importorskip("vllm", reason="make vllm-env brings it")

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.interface import EngineUnavailable, RequestInvalid
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.types import Capability, GenerationRequest, MediaKind, SamplingParams, SequenceEvent
from tests import tiny_media_models as tiny
from tests.engine.contract.subjects import tokens_of
from tests.engine.drive import Driver, assert_continues
from tests.engine.media import NUM_TOKENS, MediaPair, continuation, make_pair
from tests.integration.test_native_media import HEARING, SEEING, body_of, check
from tests.media_prompts import Prompt, film, item, picture, prompt, sound
from tests.media_service import Service, media_service, part, text
from tests.serving import Model

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

BLOCK = 32
MAX_MEDIA_MB = 1
GREEDY = SamplingParams(temperature=0.0)
WIDTH = 128
"""vLLM's kernels for a CPU know no heads as small as those of our other tests."""
SECONDS = 30
"""vLLM knows no Qwen2-Audio whose recordings may be shorter or longer."""


class Served:
    """A started engine, the model that it should equal, and a server of it."""

    service: Service

    def __init__(self, pair: MediaPair, **options: Any) -> None:
        self.pair, self._number = pair, 0
        settings = {"max_batch_size": 8, "max_step_tokens": 64, "max_context": 384, "kv_memory_gb": 0.25, **options}
        options = {"dtype": "float32", "block_size": BLOCK, "num_threads": 1, "max_media_mb": MAX_MEDIA_MB, **settings}
        args = {"enforce_eager": True}
        self.engine = create_engine("vllm", EngineOptions(model_path=pair.path, engine_args=args, **options))

    def ask(self, one: Prompt, **fields: Any) -> GenerationRequest:
        self._number += 1
        settings = {"max_tokens": NUM_TOKENS, "sampling": GREEDY, "ignore_eos": True, **fields}
        name = f"r{self._number}"
        return GenerationRequest(request_id=name, prompt_token_ids=one.token_ids, media=one.media, **settings)

    async def collect(self, request: GenerationRequest) -> list[SequenceEvent]:
        return [event async for event in await self.engine.admit(request)]

    async def answers(self, prompts: list[Prompt], **fields: Any) -> list[list[SequenceEvent]]:
        """All at once."""
        return [*await asyncio.gather(*(self.collect(self.ask(one, **fields)) for one in prompts))]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=tiny.NAMES)
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "AUDIO_SECONDS", SECONDS)
        made = Served(make_pair(request.param, folder, hidden_size=WIDTH))
        async with media_service(Model(made.engine, load_tokenizer(folder)), folder / "files") as service:
            made.service = service
            yield made


async def test_mixed_batch_cold_and_warm(served: Served) -> None:
    """Steps of 64 tokens cut prompts inside of items."""
    pair = served.pair
    assert served.engine.info.media == pair.ours.info.media
    assert Capability.MEDIA in served.engine.info.capabilities
    assert len({token for tokens in pair.expected for token in tokens}) > 10, "the reference says nothing"
    cold = await served.answers(pair.prompts)
    assert_continues([tokens_of(events)[0] for events in cold], pair.expected)
    warm = await served.answers(pair.prompts)
    assert_continues([tokens_of(events)[0] for events in warm], pair.expected)
    for one, events in zip(pair.prompts, warm, strict=True):
        assert events[-1].num_prompt_tokens == len(one.token_ids)
        assert events[-1].num_cached_tokens == (len(one.token_ids) - 1) // BLOCK * BLOCK


async def test_other_media_in_the_same_place_are_others(served: Served) -> None:
    """The ids of both prompts are the same: no block of one may serve the other."""
    model = served.engine.info.media
    assert model is not None
    makes = [sound(16000, seed=seed) if model.audio_token_id else picture(6, 6, seed=seed) for seed in (5, 6)]
    prompts = [prompt(model, "What is it? ", item(one, model), " Say.") for one in makes]
    assert prompts[0].token_ids == prompts[1].token_ids
    expected = [continuation(served.pair.name, served.pair.theirs, one) for one in prompts]
    assert expected[0] != expected[1]
    for one, sure in zip(prompts, expected, strict=True):
        (events,) = await served.answers([one])
        assert_continues([tokens_of(events)[0]], [sure])
        assert events[-1].num_cached_tokens == 0


async def test_sequences_and_beams(served: Served) -> None:
    """As our own engine has them."""
    one = served.pair.prompts[2]
    several, beams = await asyncio.gather(
        served.collect(served.ask(one, num_sequences=2)),
        served.collect(served.ask(one, num_sequences=3, beam_width=3, max_tokens=5)),
    )
    assert_continues(tokens_of(several), [served.pair.expected[2]] * 2)
    driver = Driver(served.pair.ours, max_step_tokens=64)
    driver.add("b", one.token_ids, 5, media=one.media, num_sequences=3, beam_width=3)
    driver.run()
    assert tokens_of(beams) == tokens_of(driver.events["b"])
    assert [event.num_prompt_tokens for event in beams] == [len(one.token_ids)] * len(beams)


async def test_what_has_no_room_is_refused(served: Served) -> None:
    model = served.engine.info.media
    assert model is not None
    small = item(sound(480) if model.audio_token_id else picture(2, 2), model)
    many = served.ask(prompt(model, *[small] * 21))
    with pytest.raises(RequestInvalid, match=r"media: are 21 of kind .*, vLLM takes at most 20"):
        await served.engine.admit(many)
    unplaced = served.ask(served.pair.prompts[1])
    moved = msgspec.structs.replace(unplaced.media[0], start=3)
    with pytest.raises(RequestInvalid, match=r"media\[0\]: needs its placeholder"):
        await served.engine.admit(msgspec.structs.replace(unplaced, media=(moved,)))
    forged = msgspec.structs.replace(unplaced, media=())
    with pytest.raises(RequestInvalid, match="fills 0 placeholders"):
        await served.engine.admit(forged)


async def test_media_of_others_take_the_room(served: Served) -> None:
    model = served.engine.info.media
    assert model is not None
    if model.audio_token_id is not None:
        pytest.skip("a recording is small")
    large = prompt(model, item(film(10, 7, 7, seed=1), model, seconds_per_frame=0.5))
    size, limit = len(large.media[0].data), MAX_MEDIA_MB * 2**20
    with pytest.raises(RequestInvalid, match=f"have {size} bytes"):
        await served.engine.admit(served.ask(large))
    half = prompt(model, item(film(4, 7, 7, seed=1), model, seconds_per_frame=0.5), "Go on.")
    taken = [await served.engine.admit(served.ask(half)) for _ in range(limit // len(half.media[0].data))]
    with pytest.raises(EngineUnavailable, match="media of other requests take"):
        await served.engine.admit(served.ask(half))
    taken[0].abort()
    for generation in taken:
        async for _ in generation:
            pass
    assert_continues(
        [tokens_of(events)[0] for events in await served.answers([half])],
        [continuation(served.pair.name, served.pair.theirs, half)],
    )


async def test_files_over_http_are_what_the_engine_is_given(served: Served) -> None:
    """Text of the engine's answer, and tokens in ``usage``; what the model does not take is refused before a fetch."""
    service, hears = served.service, served.pair.name == "qwen2_audio"
    given = HEARING if hears else SEEING
    async with httpx2.AsyncClient(base_url=service.live.url, timeout=300) as client:
        answers = [await check(service, client, number, "What is it? ", file) for number, file in enumerate(given)]
        assert len(set(answers)) > 1
        await check(service, client, 100, given[0], "and", given[-1], "are two things")
        spelt = body_of(part(given[0].kind, given[0].data_url), text("<|image_pad|><|video_pad|><|AUDIO|>"))
        answer = await client.post("/v1/chat/completions", json=spelt)
        other = MediaKind.IMAGE if hears else MediaKind.AUDIO
        refused = await client.post("/v1/chat/completions", json=body_of(part(other, "http://media.test/a.png")))
    assert answer.status_code == 200, answer.text
    asked = service.asked[-1]
    assert answer.json()["usage"]["prompt_tokens"] == len(asked.prompt_token_ids)
    places = {tiny.IMAGE, tiny.VIDEO, tiny.AUDIO}
    assert sum(token in places for token in asked.prompt_token_ids) == asked.media[0].num_tokens
    assert refused.status_code == 422
    assert f"messages[0].content[0].type: {other} input" in refused.json()["error"]
    assert not service.web.looked_up

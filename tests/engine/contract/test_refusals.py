"""What is refused, and that nothing comes of it."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from mindserve_engine.interface import AdmissionError, PromptTooLong, QueueFull, RequestInvalid
from mindserve_engine.types import EngineState, MediaItem, MediaKind, SamplingParams
from tests.engine.contract.subjects import ADAPTER, MAX_BATCH_SIZE, MAX_WAITING, Subject, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
PICTURE = MediaItem(kind=MediaKind.IMAGE, start=0, num_tokens=1, shape=(1, 1, 3), data=b"abc", digest=b"d" * 32)

BAD: list[tuple[str, dict[str, Any]]] = [
    ("max_tokens", {"max_tokens": 0}),
    ("num_sequences", {"num_sequences": 0}),
    ("prompt_token_ids", {"prompt": [-1]}),
    ("prompt_token_ids", {"prompt": [2**31]}),
    ("num_logprobs", {"num_logprobs": -1}),
    ("adapter", {"adapter": "nobody"}),
    ("beam_width", {"beam_width": 2, "num_sequences": 3}),
    ("beam_width", {"beam_width": MAX_BATCH_SIZE + 1}),
    ("grammar", {"grammar": "start: /a/", "beam_width": 2}),
    ("media", {"media": (PICTURE,)}),
    ("temperature", {"sampling": SamplingParams(temperature=-0.5)}),
    ("temperature", {"sampling": SamplingParams(temperature=float("nan"))}),
    ("top_p", {"sampling": SamplingParams(top_p=0.0)}),
    ("top_k", {"sampling": SamplingParams(top_k=-1)}),
    ("seed", {"sampling": SamplingParams(seed=2**64)}),
    ("repetition_penalty", {"sampling": SamplingParams(repetition_penalty=0.0)}),
    ("presence_penalty", {"sampling": SamplingParams(presence_penalty=float("inf"))}),
    ("logit_bias", {"sampling": SamplingParams(logit_bias=((10**6, 1.0),))}),
    ("logit_bias", {"sampling": SamplingParams(logit_bias=((1, float("nan")),))}),
]


@pytest.mark.parametrize(("field", "fields"), BAD, ids=[f"{field}-{number}" for number, (field, _) in enumerate(BAD)])
async def test_the_field_is_named(subject: Subject, field: str, fields: dict[str, Any]) -> None:
    before = subject.engine.stats()
    with pytest.raises(RequestInvalid) as refused:
        await subject.engine.admit(subject.ask(**fields))
    assert refused.value.field == field
    assert subject.engine.stats() == before


async def test_an_empty_prompt(subject: Subject) -> None:
    request = msgspec.structs.replace(subject.ask(), prompt_token_ids=[])
    with pytest.raises(RequestInvalid, match="prompt_token_ids"):
        await subject.engine.admit(request)


async def test_a_prompt_that_leaves_no_room(subject: Subject) -> None:
    limit = subject.engine.info.max_prompt_tokens
    with pytest.raises(PromptTooLong) as refused:
        await subject.engine.admit(subject.ask([97] * (limit + 1)))
    assert (refused.value.num_tokens, refused.value.limit) == (limit + 1, limit)
    assert len((await subject.tokens([97] * limit, max_tokens=9, ignore_eos=True))[0]) == 1


async def test_a_grammar_that_cannot_be_followed(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script follows no grammar")
    for broken in ("start: %json {", 'start: "a', "start: nobody"):
        with pytest.raises(RequestInvalid, match="grammar"):
            await subject.engine.admit(subject.ask(grammar=broken))
        with pytest.raises(RequestInvalid, match="grammar"):
            await subject.engine.check_grammar(broken)
    await subject.engine.check_grammar('start: "yes"')
    assert subject.engine.health().state is EngineState.READY


async def test_an_id_that_is_in_use(subject: Subject) -> None:
    request = subject.ask(max_tokens=300, ignore_eos=True)
    generation = await subject.engine.admit(request)
    with pytest.raises(RequestInvalid, match="in use"):
        await subject.engine.admit(request)
    generation.abort()
    await subject.idle()
    await subject.collect(subject.ask(max_tokens=1, request_id=request.request_id))


async def test_the_queue_is_bounded(subject: Subject) -> None:
    fields = {"max_tokens": 300, "ignore_eos": True}
    running = [await subject.engine.admit(subject.ask(**fields)) for _ in range(MAX_BATCH_SIZE)]
    waiting = [await subject.engine.admit(subject.ask(**fields)) for _ in range(MAX_WAITING)]
    with contextlib.ExitStack() as stack:
        for generation in (*running, *waiting):
            stack.callback(generation.abort)
        with pytest.raises(QueueFull) as refused:
            await subject.engine.admit(subject.ask(**fields))
        assert (refused.value.num_waiting, refused.value.limit) == (MAX_WAITING, MAX_WAITING)
        await until(lambda: subject.engine.stats().num_waiting == MAX_WAITING)  # figures come with a step
    await subject.idle()
    await subject.run(max_tokens=1)


async def test_an_unknown_adapter_harms_nobody(subject: Subject) -> None:
    with pytest.raises(AdmissionError, match="nobody"):
        await subject.engine.admit(subject.ask(adapter="nobody"))
    assert subject.engine.health().state is EngineState.READY
    assert subject.engine.info.adapters == (ADAPTER,)
    await subject.run(max_tokens=1)

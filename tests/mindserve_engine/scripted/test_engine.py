"""The scripted engine through its interface: transcripts, limits, failures, aborts, health."""

import asyncio
from pathlib import Path

import pytest

from mindserve_engine.interface import (
    EngineError,
    EngineUnavailable,
    GenerationFailed,
    PromptTooLong,
    QueueFull,
    RequestInvalid,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.scripted.engine import ScriptedEngine
from mindserve_engine.scripted.generation import ScriptedGeneration
from mindserve_engine.types import (
    Capability,
    EngineState,
    FinishReason,
    GenerationRequest,
    MediaItem,
    MediaKind,
    SequenceEvent,
    TokenTiming,
)

ENDLESS = "[{default: true, pieces: [a, b], repeat: true}]"
HANGING = "[{default: true, pieces: [a, b], hang_after: 1}]"


async def started(tmp_path: Path, script: str, **options: object) -> ScriptedEngine:
    (tmp_path / "s.yaml").write_text(script, "utf-8")
    engine = create_engine("scripted", EngineOptions(model_path=tmp_path / "s.yaml", **options))
    await engine.start()
    return engine


def request(prompt: str = "hi", *, request_id: str = "r", max_tokens: int = 100, **fields: object) -> GenerationRequest:
    prompt_token_ids = list(prompt.encode())
    return GenerationRequest(request_id=request_id, prompt_token_ids=prompt_token_ids, max_tokens=max_tokens, **fields)


async def collect(engine: ScriptedEngine, asked: GenerationRequest) -> list[SequenceEvent]:
    return [event async for event in await engine.admit(asked)]


async def test_transcript_is_exact(tmp_path: Path) -> None:
    script = """
    - contains: hi
      pieces: [" one", " two"]
      queue_wait_us: [5149, 60]
      batch_size: [1, 2, 3]
      step_ms: [200.5, 28]
      prompt_tokens: 9
      cached_tokens: 4
    """
    engine = await started(tmp_path, script)
    assert await collect(engine, request()) == [
        SequenceEvent("r", 0, [259], [TokenTiming(5149, 1, 200.5)], None, 9, 4),
        SequenceEvent("r", 0, [260], [TokenTiming(60, 2, 28.0)], None, 9, 4),
        SequenceEvent("r", 0, [258], [TokenTiming(60, 3, 28.0)], FinishReason.EOS, 9, 4),
    ]
    stats = engine.stats()
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total, stats.num_running) == (9, 4, 0)


@pytest.mark.parametrize(
    ("reply", "fields", "tokens", "reason"),
    [
        ("pieces: [a, b, c], finish: length", {}, "abc", FinishReason.LENGTH),
        ("pieces: [a, b, c], finish: stop", {}, "abc", FinishReason.STOP_TOKEN),
        ("pieces: [a, b, c]", {"max_tokens": 2}, "ab", FinishReason.LENGTH),
        ("pieces: [a, b, c]", {"max_tokens": 3}, "abc", FinishReason.LENGTH),
        ("pieces: [a, b, c]", {"max_tokens": 4}, "abc<|im_end|>", FinishReason.EOS),
        ("pieces: [a, b, c]", {"max_tokens": 5, "ignore_eos": True}, "abcab", FinishReason.LENGTH),
        ("pieces: [a, b], repeat: true", {"max_tokens": 5}, "ababa", FinishReason.LENGTH),
        ("pieces: [a, b, c]", {"stop_token_ids": (ord("b"), 9999)}, "ab", FinishReason.STOP_TOKEN),
    ],
)
async def test_how_a_reply_ends(
    tmp_path: Path, reply: str, fields: dict[str, object], tokens: str, reason: FinishReason
) -> None:
    engine = await started(tmp_path, f"[{{default: true, {reply}}}]")
    events = await collect(engine, request(**fields))
    assert engine._vocabulary.decode([event.token_ids[0] for event in events]) == tokens
    assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + [reason]


async def test_context_end_is_length(tmp_path: Path) -> None:
    engine = await started(tmp_path, ENDLESS, max_context=8)
    events = await collect(engine, request("12345"))
    assert (len(events), events[-1].finish_reason) == (3, FinishReason.LENGTH)


async def test_refusals(tmp_path: Path) -> None:
    engine = await started(tmp_path, "[{contains: hi, pieces: [a]}]", max_context=8, max_prompt_tokens=4)
    with pytest.raises(PromptTooLong) as too_long:
        await engine.admit(request("hi456"))
    assert (too_long.value.num_tokens, too_long.value.limit) == (5, 4)
    with pytest.raises(RequestInvalid, match="no reply of the script fits"):
        await engine.admit(request("ho"))
    with pytest.raises(RequestInvalid, match="num_sequences"):
        await engine.admit(request(num_sequences=0))
    await engine.admit(request())
    with pytest.raises(RequestInvalid, match="in use"):
        await engine.admit(request())


async def test_waiting_is_first_come_first_served_and_bounded(tmp_path: Path) -> None:
    engine = await started(tmp_path, ENDLESS, max_batch_size=1, max_waiting=2)
    first, second, third = [await engine.admit(request(request_id=str(number))) for number in range(3)]
    with pytest.raises(QueueFull) as full:
        await engine.admit(request(request_id="4"))
    assert (full.value.num_waiting, full.value.limit) == (2, 2)
    waiting = asyncio.ensure_future(anext(third))
    assert (engine.stats().num_running, engine.stats().num_waiting) == (1, 2)
    second.abort()
    assert engine.stats().num_waiting == 1
    assert [event async for event in second] == []
    assert not waiting.done()
    first.abort()
    assert (await waiting).token_ids == [ord("a")]


async def test_abort_ends_a_hanging_request_and_is_idempotent(tmp_path: Path) -> None:
    engine = await started(tmp_path, HANGING)
    generation = await engine.admit(request())
    assert (await anext(generation)).token_ids == [ord("a")]
    following = asyncio.ensure_future(anext(generation, None))
    await asyncio.sleep(0)
    generation.abort()
    generation.abort()
    assert await following is None
    assert engine.stats().num_running == 0


async def test_scripted_failures(tmp_path: Path) -> None:
    script = """
    - {contains: engine, pieces: [a, b], fail_after: 1}
    - {contains: sequence, pieces: [a, b], fail_sequence_after: 1}
    """
    engine = await started(tmp_path, script)
    generation = await engine.admit(request("engine"))
    assert (await anext(generation)).token_ids == [ord("a")]
    with pytest.raises(GenerationFailed):
        await anext(generation)
    assert [event async for event in generation] == []
    events = await collect(engine, request("sequence"))
    assert (events[0].failure, events[-1].failure, len(events)) == (None, "the script says so", 2)
    assert engine.stats().num_running == 0


async def test_crash_fails_everybody_and_the_engine_comes_back(tmp_path: Path) -> None:
    script = """
    restart_ms: 1
    replies: [{contains: crash, pieces: [a], crash_after: 0}, {default: true, pieces: [a], hang_after: 0}]
    """
    engine = await started(tmp_path, script)
    bystander = asyncio.ensure_future(anext(await engine.admit(request("hi", request_id="b"))))
    with pytest.raises(GenerationFailed):
        await collect(engine, request("crash"))
    with pytest.raises(GenerationFailed):
        await bystander
    assert engine.health().state is EngineState.RESTARTING
    with pytest.raises(EngineUnavailable):
        await engine.admit(request())
    async with asyncio.timeout(10):
        while engine.health().state is not EngineState.READY:  # noqa: ASYNC110 - health is there to be polled
            await asyncio.sleep(0.001)
    assert engine.stats().num_restarts_total == 1
    await engine.admit(request())
    await engine.close()


async def test_load_failure_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no such weights"):
        await started(tmp_path, "{load: {failure: no such weights}, replies: [{default: true, pieces: [a]}]}")
    engine = create_engine("scripted", EngineOptions(model_path=tmp_path / "none.yaml"))
    assert engine.health().state is EngineState.LOADING
    with pytest.raises(EngineUnavailable):
        await engine.admit(request())
    with pytest.raises(EngineError):
        await engine.start()
    assert engine.health().state is EngineState.FAILED


async def test_close_fails_what_runs_and_is_idempotent(tmp_path: Path) -> None:
    engine = await started(tmp_path, HANGING, max_batch_size=1)
    running, waiting = [await engine.admit(request(request_id=name)) for name in "rw"]
    await engine.close()
    await engine.close()
    for generation in (running, waiting):
        with pytest.raises(GenerationFailed):
            await anext(generation)
    assert engine.health().state is EngineState.CLOSED
    assert engine.stats().num_running == engine.stats().num_waiting == 0


async def test_undelayed_streams_take_turns(tmp_path: Path) -> None:
    engine = await started(tmp_path, ENDLESS)
    generations = [await engine.admit(request(request_id=name, max_tokens=3)) for name in "xy"]
    order: list[str] = []

    async def consume(generation: ScriptedGeneration) -> None:
        while (event := await anext(generation, None)) is not None:
            order.append(event.request_id)

    await asyncio.gather(*map(consume, generations))
    assert order == ["x", "y"] * 3


async def test_delays_are_kept(tmp_path: Path) -> None:
    engine = await started(tmp_path, "[{default: true, pieces: [a, b], delay_ms: [1, 20], finish: length}]")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert len(await collect(engine, request())) == 2
    assert loop.time() - begun >= 0.021


async def test_media_are_counted_and_checked(tmp_path: Path) -> None:
    """As a model that sees and hears would; a script says nothing of it unless it is told to."""
    engine = await started(tmp_path, "media: true\nreplies:\n- {default: true, pieces: [A cat]}")
    model = engine.info.media
    assert model is not None
    assert Capability.MEDIA in engine.info.capabilities
    assert model.num_tokens(MediaKind.IMAGE, (56, 84, 3)) == 6
    image = MediaItem(
        kind=MediaKind.IMAGE, start=1, num_tokens=6, shape=(56, 84, 3), data=bytes(56 * 84 * 3), digest=bytes(32)
    )
    prompt = [65, *[model.image_token_id] * 6, 66]
    asked = GenerationRequest(request_id="r", prompt_token_ids=prompt, max_tokens=9, media=(image,))
    assert (await collect(engine, asked))[-1].num_prompt_tokens == 8
    with pytest.raises(RequestInvalid, match=r"placeholders of kind image"):
        await engine.admit(GenerationRequest(request_id="r", prompt_token_ids=prompt, max_tokens=9))
    plain = await started(tmp_path, "- {default: true, pieces: [A cat]}")
    assert (plain.info.media, Capability.MEDIA in plain.info.capabilities) == (None, False)

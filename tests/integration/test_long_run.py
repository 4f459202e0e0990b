"""Thousands of mixed requests through one engine process: nothing is left in its cache, its books, or memory."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from mindserve_engine.interface import Generation
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import SEED_MAX, GenerationRequest, SamplingParams, SequenceEvent
from tests import tiny_adapters, tiny_models
from tests.serving import eventually

NUM_REQUESTS: Final = 5000
WARM_SHARE: Final = 0.4
"""Of the requests come before memory is measured for the first time: arenas and tables have their size then."""
NUM_CLIENTS: Final = 48
GROWTH: Final = 1.02
ADAPTERS: Final = ("red", "blue")
FATES: Final = {"read": 6, "leave at once": 1, "leave later": 2, "stop one": 1}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[NativeEngine]:
    """With so few blocks that sequences are preempted now and then."""
    folder = tiny_models.build("llama", tmp_path / "model")
    for seed, name in enumerate(ADAPTERS):
        tiny_adapters.write(folder, tmp_path / name, seed=seed)
    options = EngineOptions(
        model_path=folder,
        dtype="float32",
        num_threads=1,
        block_size=16,
        kv_memory_gb=0.0012,
        max_context=96,
        max_batch_size=64,
        adapters={name: tmp_path / name for name in ADAPTERS},
    )
    engine = NativeEngine(options)
    await engine.start()
    yield engine
    await engine.close()


def requests(dice: random.Random) -> Iterator[GenerationRequest]:
    """All features, alone and together; some prompts begin alike."""
    common = dice.choices(range(tiny_models.VOCAB_SIZE), k=40)
    for number in range(NUM_REQUESTS):
        prompt = common[: dice.choice([0, 20, 40])] + dice.choices(range(tiny_models.VOCAB_SIZE), k=dice.randint(1, 30))
        yield GenerationRequest(
            request_id=str(number),
            prompt_token_ids=prompt,
            max_tokens=dice.randint(1, 6),
            sampling=SamplingParams(
                temperature=dice.choice([0.0, 0.7, 1.0]),
                top_k=dice.choice([0, 5]),
                top_p=dice.choice([0.8, 1.0]),
                seed=dice.randint(0, SEED_MAX),
                repetition_penalty=dice.choice([1.0, 1.0, 1.3]),
                frequency_penalty=dice.choice([0.0, 0.0, 0.5]),
            ),
            stop_token_ids=tuple(dice.choices(range(tiny_models.VOCAB_SIZE), k=dice.choice([0, 20]))),
            ignore_eos=dice.random() < 0.5,
            num_logprobs=dice.choice([None, None, 0, 5]),
            adapter=dice.choice([None, None, *ADAPTERS]),
            **_several(dice),
        )


def growing_requests() -> Iterator[GenerationRequest]:
    """They fit the cache as they come and not as they end: some are preempted, however fast the machine is."""
    for number in range(24):
        yield GenerationRequest(
            request_id=f"growing {number}", prompt_token_ids=[number] * 10, max_tokens=80, ignore_eos=True
        )


def _several(dice: random.Random) -> dict[str, int]:
    match dice.choices(["one", "n", "beam"], [6, 2, 1])[0]:
        case "n":
            return {"num_sequences": dice.randint(2, 5)}
        case "beam":
            width = dice.randint(1, 4)
            return {"beam_width": width, "num_sequences": dice.randint(1, width)}
    return {}


async def _use(engine: NativeEngine, request: GenerationRequest, fate: str, dice: random.Random) -> None:
    generation = await engine.admit(request)
    if fate == "leave at once":
        generation.abort()
    patience = dice.randint(1, 6) if fate == "leave later" else None
    stopped = dice.randrange(request.num_sequences) if fate == "stop one" else None
    events = await _read(generation, patience, stopped)
    if fate in ("read", "stop one"):
        _check(request, events, stopped)


async def _read(generation: Generation, patience: int | None, stopped: int | None) -> list[SequenceEvent]:
    """Its events; abort after ``patience`` of them, and stop the sequence ``stopped`` after its first."""
    events: list[SequenceEvent] = []
    async for event in generation:
        events.append(event)
        if len(events) == patience:
            generation.abort()
        if event.index == stopped:
            generation.stop(event.index)
    return events


def _check(request: GenerationRequest, events: list[SequenceEvent], stopped: int | None) -> None:
    ends = Counter(event.index for event in events if event.finish_reason is not None)
    stopped_early = {stopped} - set(ends) if stopped is not None else set()
    assert ends == Counter(set(range(request.num_sequences)) - stopped_early), request
    for index in range(request.num_sequences):
        own = [event for event in events if event.index == index]
        num_tokens = sum(len(event.token_ids) for event in own)
        assert 1 <= num_tokens <= request.max_tokens
        assert sum(len(event.timings) for event in own) == num_tokens
        assert sum(len(event.logprobs) for event in own) == (0 if request.num_logprobs is None else num_tokens)
    assert all(event.failure is None for event in events)


def _memory(*pids: int) -> list[int]:
    """Resident bytes of this process and of those."""
    gc.collect()
    return [psutil.Process(pid).memory_info().rss for pid in (psutil.Process().pid, *pids)]


async def _run(engine: NativeEngine, work: list[tuple[GenerationRequest, str]], dice: random.Random) -> None:
    """All of ``work``, so many at a time as there are clients; returns when the engine has nothing left to do."""
    left = iter(work)

    async def client() -> None:
        for request, fate in left:
            await _use(engine, request, fate, dice)

    async with asyncio.TaskGroup() as group:
        for _ in range(NUM_CLIENTS):
            group.create_task(client())
    await eventually(lambda: _is_empty(engine))


def _is_empty(engine: NativeEngine) -> bool:
    stats = engine.stats()
    return (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)


async def test_nothing_is_left_of_five_thousand_requests(engine: NativeEngine) -> None:
    dice = random.Random(11)
    work = [(request, dice.choices(list(FATES), list(FATES.values()))[0]) for request in requests(dice)]
    work[:0] = [(request, "read") for request in growing_requests()]
    num_warm = int(WARM_SHARE * NUM_REQUESTS)
    await _run(engine, work[:num_warm], dice)
    before = _memory(*engine.pids)
    await _run(engine, work[num_warm:], dice)
    after = _memory(*engine.pids)
    grown = [round(now / then, 4) for then, now in zip(before, after, strict=True)]
    assert max(grown) < GROWTH, (grown, before, after)
    assert engine.stats().num_preemptions_total > 0
    assert engine.stats().prefix_hit_tokens_total > 0
    assert engine.stats().num_restarts_total == 0
    assert not any(request.request_id in one.ledger for one in engine._instances for request, _ in work)

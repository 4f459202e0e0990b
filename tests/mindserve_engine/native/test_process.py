"""The native engine over real processes with a fake model: answers, refusals, aborts, figures, several instances."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_core import BREAK, FAIL, NUM_BLOCKS, SLOW
from fake_runner import reference
from loops import ask
from waiting import until

from mindserve_engine.interface import EngineError, EngineUnavailable, GenerationFailed, QueueFull, RequestInvalid
from mindserve_engine.native.execution import RAISED
from mindserve_engine.native.ledger import Ledger
from mindserve_engine.native.process import NativeEngine, _room
from mindserve_engine.native.wire import Step
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.types import EngineState, EngineStats, FinishReason, SamplingParams, SequenceEvent

Start = Callable[..., "asyncio.Future[NativeEngine]"]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start_engine(**options: object) -> NativeEngine:
            fields = {"model_path": Path("none"), "runner": "fake_core:load_runner", **options}
            engine = create_engine("native", EngineOptions(**fields))
            stack.push_async_callback(engine.close)
            await engine.start()
            return engine

        yield start_engine


async def collect(engine: NativeEngine, *args: object, **fields: object) -> list[SequenceEvent]:
    return [event async for event in await engine.admit(ask(*args, **fields))]


def tokens(events: list[SequenceEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


async def test_many_requests_at_once_are_all_answered(start: Start) -> None:
    engine = await start(max_batch_size=6, max_step_tokens=16)
    prompts = [[number % 7, *range(number % 11)] for number in range(60)]
    answers = await asyncio.gather(*(collect(engine, str(i), prompt, 9) for i, prompt in enumerate(prompts)))
    for prompt, events in zip(prompts, answers, strict=True):
        assert tokens(events) == reference(prompt, 9)
        assert events[-1].finish_reason is FinishReason.LENGTH
        assert all(len(event.timings) == 1 for event in events)
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, NUM_BLOCKS)
    assert stats.prefix_query_tokens_total == sum(map(len, prompts))
    assert stats.prefix_hit_tokens_total > 0


async def test_everything_of_a_request_reaches_the_process(start: Start) -> None:
    engine = await start()
    sampling = SamplingParams(seed=2**64 - 1, temperature=0.0, top_k=2**31 - 1)
    stop = reference([5, 6], 9)[4]
    events = await collect(engine, "r", [5, 6], 9, sampling=sampling, stop_token_ids=(stop, 2**31 - 1))
    assert tokens(events) == reference([5, 6], 5)
    assert (events[-1].finish_reason, events[-1].num_prompt_tokens) == (FinishReason.STOP_TOKEN, 2)


@pytest.mark.parametrize(
    ("given", "spin_count"), [({}, 1000), ({"GOMP_SPINCOUNT": "5"}, 5), ({"OMP_WAIT_POLICY": "passive"}, None)]
)
async def test_health_info_and_environment(
    start: Start, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], spin_count: int | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    engine = await start(num_threads=3)
    assert engine.health().state is EngineState.READY
    assert engine.info.model_type == f"OMP_NUM_THREADS=3 GOMP_SPINCOUNT={spin_count} TORCH_DEVICE_BACKEND_AUTOLOAD=0"


async def test_refusals_leave_no_trace(start: Start) -> None:
    engine = await start()
    for request in (ask("r", []), ask("r", [1000]), ask("r", [1], num_sequences=2), ask("r", [1], max_tokens=0)):
        with pytest.raises(RequestInvalid):
            await engine.admit(request)
    running = await engine.admit(ask("r", [SLOW], 100))
    with pytest.raises(RequestInvalid, match="in use"):
        await engine.admit(ask("r", [1]))
    running.abort()
    await until(lambda: "r" not in engine._instances[0].ledger)
    assert tokens(await collect(engine, "r", [1], 3)) == reference([1], 3)


async def test_queue_is_bounded(start: Start) -> None:
    engine = await start(max_batch_size=1, max_waiting=1)
    first = await engine.admit(ask("1", [SLOW], 100))
    second = await engine.admit(ask("2", [7], 2))
    with pytest.raises(QueueFull) as full:
        await engine.admit(ask("3", [7], 2))
    assert (full.value.num_waiting, full.value.limit) == (1, 1)
    await anext(first)
    first.abort()
    assert tokens([event async for event in second]) == reference([7], 2)
    assert tokens(await collect(engine, "3", [7], 2)) == reference([7], 2)


async def test_nobody_may_wait_when_the_limit_is_zero(start: Start) -> None:
    engine = await start(max_batch_size=1, max_waiting=0)
    await engine.admit(ask("1", [SLOW], 100))
    with pytest.raises(QueueFull):
        await engine.admit(ask("2", [7], 2))


def record_aborts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The requests that the process says it dropped as asked, rather than let run to their end."""
    aborted: set[str] = set()
    take = Ledger.take

    def recording(self: Ledger, step: Step) -> None:
        if self is ledger:
            aborted.update(step.aborted)
        take(self, step)

    monkeypatch.setattr(Ledger, "take", recording)
    return aborted


async def test_abort_ends_iteration_and_frees_running_and_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await start(max_batch_size=1)
    aborted = record_aborts(engine._instances[0].ledger, monkeypatch)
    running = await engine.admit(ask("running", [SLOW], 120))
    waiting = await engine.admit(ask("waiting", [SLOW], 120))
    await anext(running)
    blocked = asyncio.ensure_future(anext(waiting, None))
    await asyncio.sleep(0)
    for generation in (waiting, running, running):
        generation.abort()
    assert await blocked is None
    assert [event async for event in running] == []
    await until(lambda: aborted == {"running", "waiting"})
    assert (engine.stats().num_free_blocks, engine.stats().num_waiting) == (NUM_BLOCKS, 0)


async def test_bad_requests_fail_alone(start: Start) -> None:
    engine = await start()
    good, raising, broken = await asyncio.gather(
        collect(engine, "good", [4], 9), collect(engine, "raising", [FAIL], 9), collect(engine, "broken", [BREAK], 9)
    )
    assert tokens(good) == reference([4], 9)
    assert [(event.failure, event.finish_reason) for event in raising] == [(RAISED.failure, None)]
    assert [(event.failure, event.finish_reason) for event in broken] == [("the logits are not finite", None)]
    assert engine.stats().num_restarts_total == 0


async def test_slow_consumer_gets_everything_in_order(start: Start) -> None:
    engine = await start()
    slow = await engine.admit(ask("slow", [1, 2], 20))
    await collect(engine, "other", [3], 60)
    assert tokens([event async for event in slow]) == reference([1, 2], 20)


async def test_requests_go_to_the_instance_with_most_room(start: Start) -> None:
    engine = await start(num_instances=2)
    assert len(set(engine.pids)) == 2
    assert engine.stats().num_blocks == 2 * NUM_BLOCKS
    generations = [await engine.admit(ask(str(number), [SLOW] * 9, 50)) for number in range(4)]
    assert [len(instance.ledger) for instance in engine._instances] == [2, 2]
    for generation in generations:
        generation.abort()
    await until(lambda: engine.stats().num_free_blocks == 2 * NUM_BLOCKS)


def test_place_in_the_batch_counts_more_than_free_blocks() -> None:
    full, roomy = (SimpleNamespace(ledger=Ledger(max_batch_size=size)) for size in (1, 2))
    for instance, num_free_blocks in ((full, 90), (roomy, 10)):
        instance.ledger.update(EngineStats(num_free_blocks=num_free_blocks))
        instance.ledger.open(ask("r", [1]), lambda _: None, 4)
    assert max(full, roomy, key=_room) is roomy


async def test_close_fails_what_runs_and_is_idempotent(start: Start) -> None:
    engine = await start()
    generation = await engine.admit(ask("r", [SLOW], 100))
    await anext(generation)
    await asyncio.gather(engine.close(), engine.close())
    await engine.close()
    with pytest.raises(GenerationFailed, match="closed"):
        async for _ in generation:
            pass
    assert engine.health().state is EngineState.CLOSED
    with pytest.raises(EngineUnavailable):
        await engine.admit(ask("s", [1]))
    with pytest.raises(EngineError):
        await engine.start()


def test_other_event_loops_will_do() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def talk() -> list[int]:
        engine = NativeEngine(EngineOptions(model_path=Path("none"), runner="fake_core:load_runner"))
        await engine.start()
        try:
            return tokens(await collect(engine, "r", [1, 2], 5))
        finally:
            await engine.close()

    assert uvloop.run(talk()) == reference([1, 2], 5)

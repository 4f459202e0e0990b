"""Several engine processes behind one engine: what one of them meets is not the others' concern."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from engines import answer, make_engine
from fake_core import SLOW
from fake_runner import reference
from loops import ask
from waiting import until

from mindserve_engine.interface import EngineError, EngineUnavailable, GenerationFailed
from mindserve_engine.native import supervisor
from mindserve_engine.types import EngineHealth, EngineState

pytestmark = pytest.mark.usefixtures("fast_restarts")


async def test_one_instance_of_two_may_die() -> None:
    """Its requests fail, those of the other go on, new ones are taken all the time; health tells of it."""
    engine = make_engine(num_instances=2, max_batch_size=1)
    await engine.start()
    generations = [await engine.admit(ask(str(number), [SLOW, number], 60)) for number in range(2)]
    dead, alive = engine._instances
    lost, kept = sorted(generations, key=lambda generation: generation.request_id in alive.ledger)
    assert (lost.request_id in dead.ledger, kept.request_id in alive.ledger) == (True, True)
    os.kill(dead.pid, signal.SIGKILL)
    with pytest.raises(GenerationFailed, match=f"^{supervisor.ENDED}$"):
        async for _ in lost:
            pass
    health = engine.health()
    assert (health.state, health.reason) == (
        EngineState.READY,
        f"1 of 2 instances not ready: {supervisor.ENDED}; another one is started",
    )
    new = await engine.admit(ask("new", [5], 4))
    assert "new" in alive.ledger  # though it has to wait there
    assert [token_id async for event in kept for token_id in event.token_ids] == reference(
        [SLOW, int(kept.request_id)], 60
    )
    assert [token_id async for event in new for token_id in event.token_ids] == reference([5], 4)
    await until(lambda: dead.is_ready)
    assert engine.health() == EngineHealth(state=EngineState.READY)
    await engine.close()


async def test_engine_is_loading_until_all_instances_are_ready(tmp_path: Path) -> None:
    engine = make_engine("load_one_instance", tmp_path, num_instances=2)
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: any(instance.is_ready for instance in engine._instances))
    assert engine.health().state is EngineState.LOADING
    with pytest.raises(EngineUnavailable):
        await engine.admit(ask("r", [1]))
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await starting


async def test_all_instances_dead_is_restarting() -> None:
    engine = make_engine(num_instances=2)
    await engine.start()
    for pid in engine.pids:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: engine.health().state is EngineState.RESTARTING)
    with pytest.raises(EngineUnavailable):
        await engine.admit(ask("r", [1]))
    await until(lambda: engine.health() == EngineHealth(state=EngineState.READY))
    assert engine.stats().num_restarts_total == 2
    await engine.close()


async def test_instance_given_up_leaves_the_others_ready(tmp_path: Path) -> None:
    engine = make_engine("load_once", tmp_path, num_instances=2)
    await engine.start()
    os.kill(engine.pids[0], signal.SIGKILL)
    await until(lambda: engine._instances[0].health.state is EngineState.FAILED)
    assert engine.health().state is EngineState.READY
    assert "1 of 2 instances not ready" in engine.health().reason
    assert await answer(engine, "r", [5]) == reference([5], 4)
    await engine.close()

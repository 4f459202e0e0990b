from __future__ import annotations

import asyncio

import pytest

from mindserve.api.inflight import ClientGone, InFlight
from mindserve.errors import EngineFault


async def test_work_is_cancelled_and_the_cause_raised() -> None:
    request = InFlight("u")
    asyncio.get_running_loop().call_soon(request.give_up, ClientGone())
    with pytest.raises(ClientGone):
        await request.run(asyncio.Event().wait())
    request.finish()


async def test_the_first_cause_wins() -> None:
    request = InFlight("u")
    request.give_up(EngineFault("first"))
    request.give_up(EngineFault("second"))
    assert str(request.cause) == "first"
    with pytest.raises(EngineFault, match="first"):
        await request.run(asyncio.sleep(0))
    request.finish()


async def test_what_is_registered_late_is_stopped_at_once() -> None:
    request = InFlight("u")
    stopped: list[str] = []
    request.stop_with(lambda: stopped.append("early"))
    request.give_up(ClientGone())
    request.stop_with(lambda: stopped.append("late"))
    assert stopped == ["early", "late"]
    request.finish()


async def test_nothing_happens_after_the_end() -> None:
    request = InFlight("u")
    stopped: list[str] = []
    request.stop_with(lambda: stopped.append("x"))
    request.finish()
    request.give_up(ClientGone())
    assert (request.cause, stopped) == (None, [])


async def test_a_cancellation_from_outside_stays_one() -> None:
    request = InFlight("u")
    task = asyncio.create_task(request.run(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert request.cause is None


async def test_who_has_no_last_words_is_cut_off() -> None:
    async def stuck() -> None:
        request = InFlight("u", last_words_s=0)
        request.give_up(EngineFault("x"))
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(stuck())

from __future__ import annotations

import asyncio

import pytest

from mindserve.api.inflight import InFlight
from mindserve.api.lifecycle import Lifecycle
from mindserve.errors import EngineFault, RefusalKind, RequestRefused


async def test_a_drain_waits_for_what_is_in_flight() -> None:
    lifecycle = Lifecycle(drain_timeout_s=60)
    with lifecycle.in_flight(InFlight("a")):
        draining = asyncio.create_task(lifecycle.drain())
        await asyncio.sleep(0)
        assert lifecycle.is_draining
        assert (lifecycle.num_in_flight, draining.done()) == (1, False)
    await draining
    assert lifecycle.num_in_flight == 0


async def test_a_draining_server_refuses() -> None:
    lifecycle = Lifecycle(drain_timeout_s=60)
    lifecycle.begin_drain()
    with pytest.raises(RequestRefused) as refused, lifecycle.in_flight(InFlight("a")):
        pass
    assert refused.value.kind is RefusalKind.UNAVAILABLE
    assert refused.value.retry_after_s
    assert lifecycle.num_in_flight == 0


async def test_what_does_not_end_is_given_up() -> None:
    lifecycle = Lifecycle(drain_timeout_s=0)
    request = InFlight("a")

    async def handle() -> None:
        with lifecycle.in_flight(request):
            await request.run(asyncio.Event().wait())

    handling = asyncio.create_task(handle())
    await asyncio.sleep(0)
    await lifecycle.drain()
    with pytest.raises(EngineFault):
        await handling
    assert lifecycle.num_in_flight == 0

from __future__ import annotations

import asyncio

from mindserve.api.deadlines import Deadlines
from mindserve.errors import GenerationTimeout


def deadlines(*, token_s: float, e2e_s: float) -> tuple[Deadlines, asyncio.Future[GenerationTimeout]]:
    loop = asyncio.get_running_loop()
    expired: asyncio.Future[GenerationTimeout] = loop.create_future()
    limits = Deadlines(started_at=loop.time(), token_timeout_s=token_s, e2e_timeout_s=e2e_s, expire=expired.set_result)
    return limits, expired


async def test_the_first_token_counts_from_the_start() -> None:
    _, expired = deadlines(token_s=0.02, e2e_s=60)
    assert (await expired).setting == "tokenTimeout"


async def test_the_whole_has_a_limit() -> None:
    limits, expired = deadlines(token_s=60, e2e_s=0.02)
    limits.received()
    assert (await expired).setting == "e2eTimeout"


async def test_time_between_tokens_that_nobody_waits_for_does_not_count() -> None:
    limits, expired = deadlines(token_s=0.02, e2e_s=0.2)
    limits.received()
    assert (await expired).setting == "e2eTimeout"


async def test_each_token_starts_anew() -> None:
    limits, expired = deadlines(token_s=0.05, e2e_s=60)
    loop = asyncio.get_running_loop()
    start = loop.time()
    last = start
    while loop.time() < start + 0.15:
        last = loop.time()
        limits.received()
        limits.waiting()
        await asyncio.sleep(0)
    assert not expired.done()
    assert (await expired).setting == "tokenTimeout"
    assert loop.time() >= last + 0.05


async def test_closed_ones_never_expire() -> None:
    limits, expired = deadlines(token_s=0, e2e_s=0)
    limits.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not expired.done()

"""Every hostile file gets its answer, and the processes live on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from mindserve.chat.media.decoding.rejected import MediaRejected
from tests.mindserve.chat.media.decoding.hostile import CASES, Case, ordinary
from tests.mindserve.chat.media.decoding.makers import MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool() -> AsyncIterator[DecodePool]:
    pool = DecodePool(MODEL, DecodeLimits(max_wall_s=3600.0), num_workers=1)
    await pool.start()
    yield pool
    await pool.close()


def _descriptors(pid: int) -> set[str]:
    return {file.name for file in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_hostile_file_gets_its_answer(pool: DecodePool, case: Case) -> None:
    before = pool.pids
    if isinstance(case.answer, str):
        with pytest.raises(MediaRejected) as refused:
            await pool.decode(case.kind, case.make())
        assert case.answer in str(refused.value)
    else:
        assert (await pool.decode(case.kind, case.make())).shape == case.answer
    assert (pool.pids, pool.tally.num_replaced) == (before, 0)
    assert _descriptors(pool.pids[0]) == {"0", "1", "2"}


async def test_there_are_enough_hostile_files() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


async def test_ordinary_files_are_decoded_afterwards(pool: DecodePool) -> None:
    for kind, data, shape in ordinary():
        decoded = await pool.decode(kind, data)
        assert (decoded.kind, decoded.shape) == (kind, shape)

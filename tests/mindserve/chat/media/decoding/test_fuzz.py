"""Files changed at random are decoded or refused, and nothing else happens; ``tests.media_fuzz`` tries thousands."""

from __future__ import annotations

import pytest

from mindserve.chat.media.decoding.pool import DecodePool
from tests.media_fuzz import PATIENT, decode_all, memory, mutation
from tests.media_mutations import Seed, chunks, seeds
from tests.mindserve.chat.media.decoding.hostile import ordinary
from tests.mindserve.chat.media.decoding.makers import MODEL
from tests.mindserve.chat.media.decoding.pools import started

NUM_MUTATED = 420
NUM_ROUNDS = 20
GROWTH_KB = 10_000


async def test_mutated_files_are_decoded_or_refused() -> None:
    async with started(PATIENT) as pool:
        pids = pool.pids
        outcomes = await decode_all(pool, range(NUM_MUTATED), seed=20)
        assert outcomes.faults == []
        assert outcomes.counts.total() == NUM_MUTATED
        assert min(outcomes.counts["decoded"], outcomes.counts["refused"]) > NUM_MUTATED // 10
        assert (pool.pids, pool.tally.num_replaced) == (pids, 0)
        for kind, data, shape in ordinary():
            assert (await pool.decode(kind, data)).shape == shape


async def test_memory_stays_flat() -> None:
    """Of the process that decodes: it has its size after a quarter of the rounds."""
    pool = DecodePool(MODEL, PATIENT, num_workers=1)
    await pool.start()
    sizes = []
    try:
        for number in range(NUM_ROUNDS):
            await decode_all(pool, range(len(seeds())), seed=number)
            sizes.append(memory(pool.pids[0])[0][1])
        assert max(sizes) - max(sizes[: NUM_ROUNDS // 4]) < GROWTH_KB, sizes
    finally:
        await pool.close()


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: str(seed.name))
async def test_files_are_taken_apart_to_their_end(seed: Seed) -> None:
    """Chunks that are not found could not be swapped, nor their lengths be wrong."""
    found = chunks(seed.data)
    assert len(found) >= 3
    assert max(chunk.end for chunk in found) >= len(seed.data) - 2  # a JPEG ends with a marker
    assert mutation(3, 7) == mutation(3, 7) != mutation(3, 8)

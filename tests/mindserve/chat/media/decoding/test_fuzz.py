"""Files with bytes changed at random: they are decoded or refused, and nothing else happens."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.hostile import CASES, ordinary
from tests.mindserve.chat.media.decoding.makers import MODEL

PATIENT = DecodeLimits(max_wall_s=3600.0, max_cpu_s=60)
NUM_MUTATED = 5_000
NUM_MIXED = 2_000
HEAVY = frozenset({"png 64 megapixels", "many frames", "wav of 200 channels"})
"""They are told with every run of ``test_hostile``; here they would only take long."""


def _mutated(data: bytes, rng: random.Random) -> bytes:
    """Behind its first bytes, which tell the format and would only be refused: bytes changed, cut out, doubled."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 12)):
        place = rng.randrange(16, len(changed))
        match rng.random():
            case chance if chance < 0.8:
                changed[place] = rng.randrange(256)
            case chance if chance < 0.9:
                del changed[place : place + rng.randint(1, 40)]
            case _:
                changed[place:place] = changed[place : place + rng.randint(1, 400)]
        if len(changed) < 20:
            break
    return bytes(changed[: rng.randrange(16, len(changed))] if len(changed) > 20 and rng.random() < 0.1 else changed)


def _rss_kb(pid: int | str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def _outcome(pool: DecodePool, kind: MediaKind, data: bytes) -> str:
    try:
        await pool.decode(kind, data)
    except MediaRejected as refused:
        return "lost" if "ended the process" in str(refused) or "takes longer" in str(refused) else "refused"
    return "decoded"


@pytest.mark.timeout(900)  # on a machine that does other things beside
async def test_mutated_files_are_decoded_or_refused() -> None:
    rng = random.Random(20)
    kinds = ordinary()
    pool = DecodePool(MODEL, PATIENT, num_workers=1)
    await pool.start()
    pids, outcomes = pool.pids, Counter[str]()
    try:
        for place in range(NUM_MUTATED):
            kind, data, _ = kinds[place % len(kinds)]
            outcomes[await _outcome(pool, kind, _mutated(data, rng))] += 1
        assert outcomes.total() == NUM_MUTATED
        assert outcomes.keys() == {"decoded", "refused"}
        assert min(outcomes.values()) > NUM_MUTATED // 20
        assert (pool.pids, pool.num_lost) == (pids, 0)
        for kind, data, shape in kinds:
            assert (await pool.decode(kind, data)).shape == shape
    finally:
        await pool.close()


@pytest.mark.timeout(900)
async def test_memory_stays_flat_over_many_items() -> None:
    items = [(kind, data) for kind, data, _ in ordinary()]
    items += [(case.kind, case.make()) for case in CASES if case.name not in HEAVY]
    pool = DecodePool(MODEL, PATIENT, num_workers=2)
    await pool.start()
    pids = pool.pids
    before: list[int] = []
    try:
        for start in range(0, NUM_MIXED, len(items)):
            for pair in zip(items[::2], items[1::2], strict=False):
                await asyncio.gather(*(_outcome(pool, kind, data) for kind, data in pair))
            if start >= NUM_MIXED // 4 and not before:
                before = [_rss_kb(pid) for pid in ("self", *pids)]
        after = [_rss_kb(pid) for pid in ("self", *pids)]
        assert (sorted(pool.pids), pool.num_lost) == (sorted(pids), 0)
        grown = [late - early for early, late in zip(before, after, strict=True)]
        assert max(grown) < 20_000, (before, after)
    finally:
        await pool.close()

"""The block pool against a plain model of it, and its eviction order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mindserve_engine.native.block_pool import BlockPool, PoolCorrupted

NUM_BLOCKS = 5
CONTENTS = st.integers(0, 7).map(lambda number: bytes([number]))


class Pool(RuleBasedStateMachine):
    """Tables taken, shared, published and released in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.tables: list[list[int]] = []
        self.contents: dict[int, bytes] = {}

    @precondition(lambda self: self.pool.num_free)
    @rule(data=st.data())
    def allocate(self, data: st.DataObject) -> None:
        table = [self.pool.allocate() for _ in range(data.draw(st.integers(1, self.pool.num_free)))]
        for block_id in table:
            assert not any(block_id in other for other in self.tables)
            self.contents.pop(block_id, None)
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), block_hash=CONTENTS)
    def publish(self, data: st.DataObject, block_hash: bytes) -> None:
        block_id = data.draw(st.sampled_from(data.draw(st.sampled_from(self.tables))))
        self.pool.publish(block_id, block_hash)
        if block_hash not in self.contents.values():
            self.contents.setdefault(block_id, block_hash)

    @rule(block_hash=CONTENTS)
    def share(self, block_hash: bytes) -> None:
        block_id = self.pool.find(block_hash)
        if block_id is not None:
            self.pool.share(block_id)
            self.tables.append([block_id])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def distrust(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.pool.distrust(table)
        for block_id in table:
            self.contents.pop(block_id, None)

    @invariant()
    def books_are_right(self) -> None:
        self.pool.check(self.tables)
        used = {block_id for table in self.tables for block_id in table}
        assert self.pool.num_free == NUM_BLOCKS - len(used)
        for block_id, block_hash in self.contents.items():
            assert self.pool.find(block_hash) == block_id


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPool = Pool.TestCase


def filled(pool: BlockPool, *block_hashes: bytes) -> list[int]:
    table = [pool.allocate() for _ in block_hashes]
    for block_id, block_hash in zip(table, block_hashes, strict=True):
        pool.publish(block_id, block_hash)
    return table


def test_uncached_blocks_go_first_then_the_least_recently_used_tail_before_head() -> None:
    pool = BlockPool(5)
    old, new = filled(pool, b"1", b"2"), filled(pool, b"3")
    plain = [pool.allocate()]
    pool.release(old)
    pool.release(new)
    pool.release(plain)
    assert [pool.allocate() for _ in range(5)] == [*plain, 4, *reversed(old), *new]


def test_shared_block_is_not_given_away() -> None:
    pool = BlockPool(1)
    table = filled(pool, b"x")
    pool.release(table)
    pool.share(table[0])
    assert pool.num_free == 0
    pool.release(table)
    assert pool.allocate() == table[0]
    assert pool.find(b"x") is None


def test_double_release_and_wrong_books_are_detected() -> None:
    pool = BlockPool(2)
    block_id = pool.allocate()
    with pytest.raises(PoolCorrupted, match="0 users"):
        pool.check([])
    with pytest.raises(PoolCorrupted, match="2 users"):
        pool.check([[block_id], [block_id]])
    pool.release([block_id])
    with pytest.raises(PoolCorrupted, match="released twice"):
        pool.release([block_id])

"""Prefix hashes: equal contents and equal histories only."""

from loops import ask

from mindserve_engine.native.block_pool import BlockPool
from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.sequence import Sequence


def opened(cache: KvCache, prompt: list[int], cache_key: bytes = b"") -> Sequence:
    sequence = Sequence(sequence_id=0, request_number=0, request=ask("r", prompt), arrived=0.0, cache_key=cache_key)
    assert cache.open(sequence, num_spare=0)
    return sequence


def computed(cache: KvCache, prompt: list[int], cache_key: bytes = b"") -> Sequence:
    """A sequence whose prompt has been run and which has ended."""
    sequence = opened(cache, prompt, cache_key)
    sequence.num_computed = len(prompt)
    cache.publish(sequence)
    cache.close(sequence)
    return sequence


def make_cache(num_blocks: int = 8) -> KvCache:
    return KvCache(BlockPool(num_blocks), block_size=2, prefix_cache=True)


def test_a_block_is_known_by_everything_before_it() -> None:
    cache = make_cache()
    computed(cache, [1, 2, 3, 4, 5])
    assert opened(cache, [1, 2, 3, 4, 9]).num_computed == 4
    assert opened(cache, [1, 9, 3, 4, 5]).num_computed == 0


def test_the_cache_key_separates_adapters_and_media() -> None:
    cache = make_cache()
    computed(cache, [1, 2, 3], b"adapter-a")
    assert opened(cache, [1, 2, 3], b"adapter-b").num_computed == 0
    assert opened(cache, [1, 2, 3], b"adapter-a").num_computed == 2


def test_blocks_in_use_are_shared_while_they_are_used() -> None:
    cache = make_cache()
    first = opened(cache, [1, 2, 3])
    first.num_computed = 3
    cache.publish(first)
    second = opened(cache, [1, 2, 4])
    assert second.block_ids[0] == first.block_ids[0]
    assert second.block_ids[1] != first.block_ids[1]
    cache.close(first)
    cache.pool.check([second.block_ids])


def test_blocks_in_use_cost_a_newcomer_nothing() -> None:
    cache = make_cache(num_blocks=3)
    first = opened(cache, [1, 2, 3])
    first.num_computed = 3
    cache.publish(first)
    opened(cache, [1, 2, 4])
    assert cache.pool.num_free == 0


def test_a_block_is_added_when_the_last_one_is_full_and_not_before() -> None:
    cache = make_cache(num_blocks=2)
    sequence = opened(cache, [1, 2])
    assert cache.grow(sequence)
    assert len(sequence.block_ids) == 1
    sequence.append(3)
    assert cache.grow(sequence)
    assert len(sequence.block_ids) == 2
    sequence.append(4)
    sequence.append(5)
    assert not cache.grow(sequence)
    assert len(sequence.block_ids) == 2


def test_refused_opening_changes_nothing() -> None:
    cache = make_cache(num_blocks=2)
    computed(cache, [1, 2, 3])
    sequence = Sequence(sequence_id=1, request_number=1, request=ask("r", [1, 2, 3]), arrived=0.0)
    assert not cache.open(sequence, num_spare=1)
    assert (sequence.block_ids, cache.pool.num_free, cache.num_query_tokens) == ([], 2, 3)
    cache.pool.check([])
    assert cache.open(sequence, num_spare=0)
    assert sequence.num_computed == 2

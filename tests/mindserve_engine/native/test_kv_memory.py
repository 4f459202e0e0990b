"""How many KV blocks a model gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve_engine.interface import EngineError
from mindserve_engine.native.kv_memory import CacheRoom, size_kv_cache
from mindserve_engine.options import EngineOptions

GIB = 2**30


def room(free_gib: float, *, is_shared: bool = True) -> CacheRoom:
    return CacheRoom(int(free_gib * GIB), share=0.3, is_shared=is_shared)


def options(**changes: Any) -> EngineOptions:
    return EngineOptions(model_path=Path("m"), **{"block_size": 128, "max_batch_size": 200, **changes})


def test_a_fixed_amount_of_memory() -> None:
    budget = size_kv_cache(options(kv_memory_gb=1.0), room(100), token_bytes=1024, model_limit=8192, block_size=128)
    assert budget.num_blocks == GIB // (1024 * 128)
    assert budget.max_context == 8192
    assert not budget.is_cut


def test_never_more_than_the_largest_batch_can_use() -> None:
    budget = size_kv_cache(
        options(kv_memory_gb=50, max_batch_size=3, max_context=300),
        room(64),
        token_bytes=16,
        model_limit=8192,
        block_size=128,
    )
    assert budget.num_blocks == 3 * 3
    assert budget.max_context == 300


def test_instances_share_the_free_memory() -> None:
    one, four = (
        size_kv_cache(options(num_instances=n), room(8), token_bytes=65536, model_limit=4096, block_size=128).num_blocks
        for n in (1, 4)
    )
    assert one == pytest.approx(4 * four, abs=4)


def test_instances_with_memory_of_their_own_share_nothing() -> None:
    own = room(8, is_shared=False)
    one, four = (
        size_kv_cache(options(num_instances=n), own, token_bytes=65536, model_limit=4096, block_size=128).num_blocks
        for n in (1, 4)
    )
    assert one == four


def test_the_models_limit_is_cut_to_what_fits() -> None:
    budget = size_kv_cache(options(), room(4), token_bytes=2**20, model_limit=131072, block_size=128)
    assert budget.max_context == budget.num_blocks * 128 < 131072
    assert budget.is_cut


@pytest.mark.parametrize("changes", [{"max_context": 100_000}, {"kv_memory_gb": 0.00001}])
def test_what_the_operator_asked_for_is_not_cut(changes: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="npuMemSize: the memory for keys and values holds"):
        size_kv_cache(options(**changes), room(4), token_bytes=2**20, model_limit=131072, block_size=128)


def test_more_memory_than_is_free_is_refused() -> None:
    chosen = options(kv_memory_gb=3, num_instances=2)
    with pytest.raises(EngineError, match=r"npuMemSize: 3 GB for each of 2 model instances .* the 5\.0 GB"):
        size_kv_cache(chosen, room(5), token_bytes=16, model_limit=8192, block_size=128)


@given(
    st.floats(0.001, 4),
    st.sampled_from([16, 32, 128]),
    st.integers(1, 300),
    st.integers(2, 10**5),
    st.integers(64, 10**6),
)
def test_within_memory_and_room_for_one_sequence(
    memory_gb: float, block_size: int, max_batch_size: int, model_limit: int, token_bytes: int
) -> None:
    chosen = options(kv_memory_gb=memory_gb, max_batch_size=max_batch_size)
    try:
        budget = size_kv_cache(chosen, room(8), token_bytes=token_bytes, model_limit=model_limit, block_size=block_size)
    except EngineError:
        assert memory_gb * GIB < token_bytes * block_size
        return
    assert budget.num_blocks * block_size * token_bytes <= memory_gb * GIB
    assert 0 < budget.max_context <= min(model_limit, budget.num_blocks * block_size)

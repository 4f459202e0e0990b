"""The pool of KV blocks: reference counts, the free list in eviction order, and the index of cached blocks.

A block is in exactly one of two states: in use (reference count above 0) or free. A free block may still hold keys and
values that the prefix cache knows by their hash; such blocks are given away last, the least recently used first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable


class PoolCorrupted(Exception):
    """The pool's books contradict the sequences': going on would mix up the answers of different requests."""


class BlockPool:
    """Hands out block ids 0..num_blocks-1."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._num_references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._cached: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated, cached ones included."""
        return len(self._free)

    def allocate(self) -> int:
        """A block for new contents, with one reference; whatever it held is forgotten. The pool must not be empty."""
        block_id, _ = self._free.popitem(last=False)
        block_hash = self._hashes[block_id]
        if block_hash is not None:
            del self._cached[block_hash]
            self._hashes[block_id] = None
        self._num_references[block_id] = 1
        return block_id

    def find(self, block_hash: bytes) -> int | None:
        """The block that holds the contents of ``block_hash``, free or in use."""
        return self._cached.get(block_hash)

    def is_free(self, block_id: int) -> bool:
        return self._num_references[block_id] == 0

    def is_shared(self, block_id: int) -> bool:
        """Whether writing to the block would change what another sequence reads."""
        return self._num_references[block_id] > 1

    def share(self, block_id: int) -> None:
        """One more reference to a block found by ``find`` or held by a sequence that is forked."""
        if self._num_references[block_id] == 0:
            del self._free[block_id]
        self._num_references[block_id] += 1

    def publish(self, block_id: int, block_hash: bytes) -> None:
        """Tell the prefix cache what a full block holds. The first block with given contents stays the known one."""
        if block_hash not in self._cached and self._hashes[block_id] is None:
            self._cached[block_hash] = block_id
            self._hashes[block_id] = block_hash

    def distrust(self, block_ids: Iterable[int]) -> None:
        """Nobody may find these blocks any more: what they hold may be wrong."""
        for block_id in block_ids:
            block_hash = self._hashes[block_id]
            if block_hash is not None:
                del self._cached[block_hash]
                self._hashes[block_id] = None

    def release(self, block_ids: list[int]) -> None:
        """Give one reference to each of a sequence's blocks back.

        The last blocks are freed first: the start of a prompt is what others are likely to share, so it stays longest.
        """
        for block_id in reversed(block_ids):
            if self._num_references[block_id] < 1:
                raise PoolCorrupted(f"block {block_id} was released twice")
            self._num_references[block_id] -= 1
            if self._num_references[block_id] == 0:
                self._free[block_id] = None
                if self._hashes[block_id] is None:
                    self._free.move_to_end(block_id, last=False)

    def check(self, tables: Iterable[list[int]]) -> None:
        """Compare the books with the block tables of all live sequences. Raises ``PoolCorrupted``."""
        used = Counter(block_id for table in tables for block_id in table)
        for block_id, num_references in enumerate(self._num_references):
            if num_references != used[block_id]:
                message = f"block {block_id} has {num_references} references and {used[block_id]} users"
                raise PoolCorrupted(message)
            if (num_references == 0) != (block_id in self._free):
                raise PoolCorrupted(f"block {block_id} has {num_references} references and is on the wrong list")
        known = {block_hash: block_id for block_id, block_hash in enumerate(self._hashes) if block_hash is not None}
        if known != self._cached or len(self._free) > self.num_blocks:
            raise PoolCorrupted("the index of cached blocks does not fit the blocks")

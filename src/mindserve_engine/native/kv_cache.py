"""Which blocks a sequence's keys and values live in, and which of them it can take over from earlier sequences.

A full block is known by the hash of its tokens, of the media that its placeholders stand for, of everything before them
and of the sequence's ``cache_key``; equal hashes mean equal keys and values. The hash is cryptographic: a collision
would show one user another's prompt.
"""

from __future__ import annotations

import hashlib
from array import array

from mindserve_engine.native.block_pool import BlockPool
from mindserve_engine.native.sequence import Sequence


class KvCache:
    """Block tables of the sequences over one ``BlockPool``."""

    def __init__(self, pool: BlockPool, *, block_size: int, prefix_cache: bool) -> None:
        self.pool = pool
        self.block_size = block_size
        self.num_query_tokens = 0
        """Prompt tokens looked up in the prefix cache so far."""
        self.num_hit_tokens = 0
        self._prefix_cache = prefix_cache
        self._copies: dict[int, int] = {}
        """To be done before the next step's writes: destination and source."""

    def open(self, sequence: Sequence, *, num_spare: int) -> bool:
        """Give a waiting sequence blocks for all its tokens, cached ones where there are.

        False, and nothing changed, when that would leave fewer than ``num_spare`` blocks free.
        """
        hits = self._find_prefix(sequence)
        num_new = self._num_blocks(len(sequence.token_ids)) - len(hits)
        num_taken = num_new + sum(self.pool.is_free(block_id) for block_id in hits)
        if num_taken + num_spare > self.pool.num_free:
            return False
        for block_id in hits:  # before allocating: a free cached block would be given away
            self.pool.share(block_id)
        sequence.block_ids = hits + [self.pool.allocate() for _ in range(num_new)]
        sequence.num_computed = len(hits) * self.block_size
        sequence.num_published = len(hits)
        if sequence.num_cached_tokens is None:
            self._count(sequence)
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Make room for the sequence's newest token in a block of its own: one that forked sequences share is copied.

        False, and nothing changed, when no block is free.
        """
        number = (len(sequence.token_ids) - 1) // self.block_size
        is_new = number == len(sequence.block_ids)
        if not is_new and not self.pool.is_shared(sequence.block_ids[number]):
            return True
        if not self.pool.num_free:
            return False
        block_id = self.pool.allocate()
        if is_new:
            sequence.block_ids.append(block_id)
        else:
            self._copies[block_id] = sequence.block_ids[number]
            self.pool.release([sequence.block_ids[number]])
            sequence.block_ids[number] = block_id
        return True

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a forked sequence use its parent's blocks; whoever writes first copies (``grow``)."""
        for block_id in parent.block_ids:
            self.pool.share(block_id)
        child.block_ids = list(parent.block_ids)

    def take_copies(self) -> list[tuple[int, int]]:
        """Pairs (from, to) of blocks to be copied before the step runs; they are the caller's now."""
        copies, self._copies = self._copies, {}
        return [(source, destination) for destination, source in copies.items()]

    def publish(self, sequence: Sequence) -> None:
        """Let others share the blocks that have become full."""
        num_full = sequence.num_computed // self.block_size
        if self._prefix_cache and num_full > sequence.num_published:
            self._hash_blocks(sequence, num_full)
            for number in range(sequence.num_published, num_full):
                self.pool.publish(sequence.block_ids[number], sequence.block_hashes[number])
            sequence.num_published = num_full

    def close(self, sequence: Sequence) -> None:
        """Take the sequence's blocks back. It may be opened again, and then starts anew."""
        for block_id in sequence.block_ids if self._copies else ():
            self._copies.pop(block_id, None)  # the block may be given to another before the copy is made
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []

    def _count(self, sequence: Sequence) -> None:
        sequence.num_cached_tokens = sequence.num_computed
        if self._prefix_cache:
            self.num_query_tokens += len(sequence.token_ids)
            self.num_hit_tokens += sequence.num_computed

    def _find_prefix(self, sequence: Sequence) -> list[int]:
        """The longest run of cached blocks, short of the last token: its logits are needed, so it is always run."""
        hits: list[int] = []
        if not self._prefix_cache:
            return hits
        num_blocks = (len(sequence.token_ids) - 1) // self.block_size
        self._hash_blocks(sequence, num_blocks)
        for block_hash in sequence.block_hashes[:num_blocks]:
            block_id = self.pool.find(block_hash)
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def _hash_blocks(self, sequence: Sequence, num_blocks: int) -> None:
        """Extend the sequence's hash chain to its first ``num_blocks`` blocks."""
        hashes, size = sequence.block_hashes, self.block_size
        for number in range(len(hashes), num_blocks):
            parent = hashes[-1] if hashes else hashlib.blake2b(sequence.cache_key, digest_size=16).digest()
            tokens = array("I", sequence.token_ids[number * size : (number + 1) * size])
            media = b"" if sequence.media is None else sequence.media.key(number * size, (number + 1) * size)
            hashes.append(hashlib.blake2b(parent + tokens.tobytes() + media, digest_size=16).digest())

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

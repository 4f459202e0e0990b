"""The books of the encoder cache: which items' embeddings are held, within how many bytes, and who leaves first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container


class EncoderCache:
    """Items by digest, the least recently used first. Who holds the tensors is told what to drop."""

    def __init__(self, *, limit_bytes: int, token_bytes: int) -> None:
        self._limit = limit_bytes
        self._token_bytes = token_bytes
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self.num_bytes = 0

    def __contains__(self, digest: object) -> bool:
        return digest in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def use(self, digest: bytes) -> None:
        self._sizes.move_to_end(digest)

    def make_room(self, num_tokens: int, in_use: Container[bytes]) -> list[bytes] | None:
        """What must be dropped before an item of so many tokens can come; ``None``, and nothing changed, when items
        that are in use leave no room for it. One that is alone may be larger than the limit."""
        excess = self.num_bytes + num_tokens * self._token_bytes - self._limit
        dropped: list[bytes] = []
        for digest, size in self._sizes.items():
            if excess <= 0:
                break
            if digest not in in_use:
                dropped.append(digest)
                excess -= size
        if excess > 0 and len(dropped) < len(self._sizes):
            return None
        for digest in dropped:
            self.drop(digest)
        return dropped

    def add(self, digest: bytes, num_tokens: int) -> None:
        self._sizes[digest] = num_tokens * self._token_bytes
        self.num_bytes += self._sizes[digest]

    def drop(self, digest: bytes) -> None:
        self.num_bytes -= self._sizes.pop(digest)

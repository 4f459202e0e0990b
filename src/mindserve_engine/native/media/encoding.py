"""Decides which item is encoded next, and works on it for a slice of time between the steps of the language model.

The encoder (the tower) of a large image takes as long as hundreds of decode steps. It runs in pieces of a few
milliseconds, so the loop can give it a share of each step without a thread of its own, which would compete with the
decode steps for the same cores, at a rate that nobody sets. What is computed does not depend on how the pieces are
spread over the steps. One item is worked on at a time, that which the oldest running sequence needs next; a sequence
holds its place and its blocks while it waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from mindserve_engine.media.positions import PositionRule
from mindserve_engine.native.media.encoder_cache import EncoderCache
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.types import MediaItem

log = logging.getLogger(__name__)


class Encoder(Protocol):
    """Makes embeddings of media and keeps them by digest. One thread uses it."""

    rule: PositionRule | None
    """How positions are counted; ``None``: one after the other."""
    token_bytes: int
    """Of one embedding."""

    def begin(self, item: MediaItem) -> None:
        """Drop what was begun before, and begin with ``item``."""

    def advance(self) -> bool:
        """Compute one more piece; True when that was the last one, and the embeddings are kept."""

    def stop(self) -> None:
        """Drop what was begun."""

    def forget(self, digest: bytes) -> None:
        """Drop the embeddings of an item."""


class Encoding:
    """The work on the media of running sequences."""

    def __init__(self, encoder: Encoder | None, *, limit_bytes: int, clock: Callable[[], float]) -> None:
        self._encoder = encoder
        self._clock = clock
        self.cache = EncoderCache(limit_bytes=limit_bytes, token_bytes=encoder.token_bytes if encoder else 0)
        self.rule = encoder.rule if encoder else None
        self.current: MediaItem | None = None
        """What has been begun."""

    def work(self, running: Iterable[Sequence], seconds: float) -> list[Sequence]:
        """Encode for no longer than ``seconds``, as far as the piece before tells how long the next one takes, but at
        least one piece, or to the end of an item. Returns the sequences that cannot go on because their item cannot be
        encoded."""
        wanting = self._choose(running)
        if not wanting:
            return []
        began = self._clock()
        assert self._encoder is not None
        assert self.current is not None
        for sequence in wanting:
            sequence.work_began_at = began if sequence.work_began_at is None else sequence.work_began_at
        try:
            before = began
            while not self._encoder.advance():
                now = self._clock()
                if 2 * now - before - began > seconds:
                    return []
                before = now
        except Exception:
            log.exception("media of request %s cannot be encoded", wanting[0].request.request_id)
            self._drop()
            return wanting
        self.cache.add(self.current.digest, self.current.num_tokens)
        self.current = None
        return []

    def settle(self, live: Iterable[Sequence]) -> None:
        """Sequences have ended: an item that none of ``live`` has is not worked on any more."""
        digest = self.current.digest if self.current else None
        if digest is not None and not any(
            item.digest == digest for one in live if one.media for item in one.media.from_token(one.num_computed)
        ):
            self._drop()

    def distrust(self, sequence: Sequence) -> None:
        """What came of a sequence's media was no numbers: whoever has them too gets them anew."""
        for item in sequence.media.items if sequence.media else ():
            if item.digest in self.cache:
                self.cache.drop(item.digest)
                assert self._encoder is not None
                self._encoder.forget(item.digest)

    def _choose(self, running: Iterable[Sequence]) -> list[Sequence]:
        """Make ``current`` the item to work on, and return those who wait for it; none when there is nothing to do, or
        no room for its embeddings before others have been used."""
        in_use: set[bytes] = set()
        item: MediaItem | None = None
        wanting: list[Sequence] = []
        for sequence in running:
            if sequence.media is None:
                continue
            missing = sequence.media.missing(sequence.num_computed, self.cache)
            in_use.update(self._usable(sequence, missing))
            item = item or missing
            if missing is not None and item is not None and missing.digest == item.digest:
                wanting.append(sequence)
        if item is not None and (self.current is None or self.current.digest != item.digest):
            self._drop()
            return wanting if self._begin(item, in_use) else []
        return wanting

    def _usable(self, sequence: Sequence, missing: MediaItem | None) -> Iterable[bytes]:
        """Items whose embeddings the sequence can take in now."""
        assert sequence.media is not None
        for item in sequence.media.from_token(sequence.num_computed):
            if item is missing:
                return
            self.cache.use(item.digest)
            yield item.digest

    def _begin(self, item: MediaItem, in_use: set[bytes]) -> bool:
        dropped = self.cache.make_room(item.num_tokens, in_use)
        if dropped is None:
            return False
        assert self._encoder is not None
        for digest in dropped:
            self._encoder.forget(digest)
        self._encoder.begin(item)
        self.current = item
        return True

    def _drop(self) -> None:
        if self.current is not None:
            assert self._encoder is not None
            self._encoder.stop()
            self.current = None

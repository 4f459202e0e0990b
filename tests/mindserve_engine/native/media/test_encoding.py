"""Encoding takes its share of each step and no more, in order, once for each item, without holding anybody up."""

from __future__ import annotations

import hashlib
import itertools
import statistics

import pytest
from fake_runner import FakeRunner, reference
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from loops import Bench, FakeClock, ask

from mindserve_engine.media.positions import PositionRule
from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.native.scheduler import Schedule
from mindserve_engine.types import GenerationRequest, MediaItem, MediaKind

PLACEHOLDER = 990
TOKEN_BYTES = 8
STEP_S, PIECE_S, NUM_PIECES = 0.1, 0.02, 200


class FakeEncoder:
    """Implements ``Encoder``: each piece takes the same time, on the bench's clock."""

    rule: PositionRule | None = None
    token_bytes = TOKEN_BYTES

    def __init__(self) -> None:
        self.clock: FakeClock | None = None
        self.piece_s = PIECE_S
        self.num_pieces = NUM_PIECES
        self.begun: list[bytes] = []
        self.held: dict[bytes, int] = {}
        self._current: MediaItem | None = None
        self._left = 0

    def begin(self, item: MediaItem) -> None:
        assert item.digest not in self.held, "what is there is encoded again"
        self._current, self._left = item, self.num_pieces
        self.begun.append(item.digest)

    def advance(self) -> bool:
        assert self._current is not None
        if self.clock is not None:
            self.clock.now += self.piece_s
        self._left -= 1
        if not self._left:
            self.held[self._current.digest] = self._current.num_tokens
            self._current = None
        return self._current is None

    def stop(self) -> None:
        self._current = None

    def forget(self, digest: bytes) -> None:
        del self.held[digest]


class SeeingRunner(FakeRunner):
    """Adds what an item is to the tokens of its placeholders."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.encoder: FakeEncoder = FakeEncoder()

    def run(self, batch: StepBatch) -> list[Sampled]:
        if self.encoder.clock is not None:
            self.encoder.clock.now += STEP_S
        seen: dict[int, bytes] = {}
        for overlay in batch.overlays:
            assert overlay.digest in self.encoder.held, "an item is used that is not encoded"
            for offset in range(overlay.stop - overlay.start):
                seen[overlay.row + offset] = overlay.digest + bytes([overlay.start + offset])
        assert sorted(seen) == [row for row, token in enumerate(batch.token_ids) if token == PLACEHOLDER]
        batch.token_ids = [value_of(seen[row]) if row in seen else token for row, token in enumerate(batch.token_ids)]
        return super().run(batch)


def value_of(seen: bytes) -> int:
    return int.from_bytes(hashlib.sha256(seen).digest()[:3], "big")


class MediaBench(Bench):
    def __init__(self, **options: object) -> None:
        super().__init__(runner_class=SeeingRunner, **options)
        self.encoder: FakeEncoder = self.runner.encoder

    def _schedule(self) -> Schedule:
        """Those that wait for their media have no part in the step; those that decode always have."""
        work = self._decide()
        decoding = [one for one in self._scheduler.running if one.num_remaining == 1]
        assert set(decoding) <= set(work)
        assert sum(work.values()) <= self.options.max_step_tokens
        return work


def seeing(request_id: str, *parts: int | str, max_tokens: int = 8) -> GenerationRequest:
    """A number of text tokens, or the name of an item; its tokens are as many as its name has letters."""
    prompt: list[int] = []
    media = []
    for part in parts:
        if isinstance(part, int):
            prompt += range(1, part + 1)
            continue
        digest = hashlib.sha256(part.encode()).digest()
        start, number = len(prompt), len(part)
        media.append(
            MediaItem(kind=MediaKind.AUDIO, start=start, num_tokens=number, shape=(1,), data=b"", digest=digest)
        )
        prompt += [PLACEHOLDER] * number
    return ask(request_id, prompt, max_tokens, media=tuple(media))


def expected(request: GenerationRequest) -> list[int]:
    prompt = list(request.prompt_token_ids)
    for item in request.media:
        for offset in range(item.num_tokens):
            prompt[item.start + offset] = value_of(item.digest + bytes([offset]))
    return reference(prompt, request.max_tokens)


def test_running_streams_go_on_at_half_their_speed_or_better() -> None:
    """A large image: 200 pieces of 20 ms beside decode steps of 100 ms."""
    bench = MediaBench(num_blocks=64)
    bench.encoder.clock = bench.clock
    bench.add(ask("text", [1, 2, 3], 120))
    for _ in range(20):
        bench.step()
    bench.add(seeing("image", 2, "elephant", 2))
    at: list[float] = []
    while not bench.events["image"]:
        bench.step()
        at.append(bench.clock.now)
    waits = [later - earlier for earlier, later in itertools.pairwise(at[:-1])]
    assert len(waits) > 25
    assert max(waits) <= 3 * STEP_S
    assert max(waits) <= 1.5 * statistics.median(waits)
    bench.run()
    assert bench.output("image") == expected(seeing("image", 2, "elephant", 2))


def test_a_piece_that_does_not_fit_waits_for_the_next_step() -> None:
    """Pieces of 60 ms beside decode steps of 100 ms: one fits, two would make the pause longer than twice a step."""
    bench = MediaBench(num_blocks=64)
    bench.encoder.clock, bench.encoder.piece_s = bench.clock, 0.06
    bench.add(ask("text", [1, 2, 3], 250))
    for _ in range(20):
        bench.step()
    bench.add(seeing("image", 2, "elephant", 2))
    at: list[float] = []
    while not bench.encoder.begun or bench.loop._encoding.current is not None:
        bench.step()
        at.append(bench.clock.now)
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert len(waits) > 100
    assert max(waits) < 2 * STEP_S


def test_alone_it_takes_longer_turns() -> None:
    bench = MediaBench(num_blocks=64)
    bench.encoder.clock = bench.clock
    bench.add(seeing("image", 2, "elephant", 2))
    num_steps = 0
    while not bench.events["image"]:
        bench.step()
        num_steps += 1
    assert num_steps <= NUM_PIECES / 3 + 3, "three pieces fit into 75 ms"


def test_no_piece_of_an_image_that_nobody_needs_any_more() -> None:
    bench = MediaBench(num_blocks=64)
    bench.encoder.clock = bench.clock
    for name in ("a", "b"):
        bench.add(seeing(name, 1, "elephant", 2))
    bench.add(seeing("c", 1, "mouse", 2))
    for _ in range(5):
        bench.step()
    bench.loop.abort("a")
    bench.step()
    assert len(bench.encoder.begun) == 1, "begun again though another waits for the same"
    bench.loop.abort("b")
    bench.run()
    assert len(bench.encoder.begun) == 2
    assert bench.output("c") == expected(seeing("c", 1, "mouse", 2))


def test_blocks_that_hold_an_item_spare_its_encoding() -> None:
    bench = MediaBench(num_blocks=64)
    bench.encoder.num_pieces = 3
    first, second = seeing("a", 4, "elephant", 9), seeing("b", 4, "elephant", 9, 5)
    bench.add(first)
    bench.run()
    bench.loop._encoding.cache.drop(first.media[0].digest)
    bench.encoder.forget(first.media[0].digest)
    bench.add(second)
    bench.run()
    assert len(bench.encoder.begun) == 1
    assert bench.output("b") == expected(second)


PARTS = st.one_of(st.integers(1, 9), st.sampled_from(["a", "mouse", "moose", "elephant", "hippopotamus"]))


@pytest.mark.parametrize("prefix_cache", [True, False])
@hypothesis_settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(st.tuples(st.lists(PARTS, max_size=5), st.integers(0, 3)), min_size=1, max_size=6),
    limit=st.integers(0, 3),
    max_step_tokens=st.sampled_from([4, 9, 64]),
    num_blocks=st.sampled_from([20, 40]),
    num_pieces=st.integers(1, 4),
)
def test_any_mix_comes_to_its_end_and_says_what_it_would_alone(
    prefix_cache: bool,
    requests: list[tuple[list[int | str], int]],
    limit: int,
    max_step_tokens: int,
    num_blocks: int,
    num_pieces: int,
) -> None:
    """Under preemption, with hardly any place for embeddings."""
    bench = MediaBench(
        num_blocks=num_blocks, max_step_tokens=max_step_tokens, max_batch_size=4, prefix_cache=prefix_cache
    )
    bench.loop._encoding.cache._limit = limit * 10 * TOKEN_BYTES
    bench.encoder.num_pieces = num_pieces
    asked = [seeing(str(number), *parts, 2, max_tokens=12) for number, (parts, _) in enumerate(requests)]
    for request, (_, num_steps) in zip(asked, requests, strict=True):
        bench.add(request)
        for _ in range(num_steps):
            if bench.loop.has_work:
                bench.step()
    bench.run()
    for request in asked:
        assert bench.output(request.request_id) == expected(request)
    assert set(bench.encoder.held) == set(bench.loop._encoding.cache._sizes)

"""A model without tensors whose every token depends on every earlier one, read back through the block tables.

The state of a token is computed from the states of all tokens before it, which the fake finds in its slots as a real
model finds keys and values. A wrong table, a block given to two sequences or a false prefix hit changes the output.
"""

from __future__ import annotations

from mindserve_engine.beam import Candidate
from mindserve_engine.native.batch import Sampled, SampleRow, StepBatch
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.types import TokenLogprobs

VOCAB_SIZE = 1000
NUM_GENERATED = 900
"""Ids from here on are never generated: prompts use them to make a fake misbehave."""


def next_state(states: list[int], token_id: int) -> int:
    """The state of ``token_id`` after tokens with these states."""
    return (sum(states) * 2654435761 + len(states) * 97 + token_id * 7919 + 12345) % 1_000_003


def reference(prompt: list[int], num_tokens: int, index: int = 0) -> list[int]:
    """What a model that never forgets and never shares generates as a request's sequence ``index``."""
    states: list[int] = []
    for token_id in prompt:
        states.append(next_state(states, token_id))
    output: list[int] = []
    while len(output) < num_tokens:
        output.append((states[-1] + index) % NUM_GENERATED)
        states.append(next_state(states, output[-1]))
    return output


def beam_candidates(state: int, num_candidates: int) -> list[tuple[int, float]]:
    """Token and log-probability of the best continuations after the state, best first; no two states have ties."""
    return [
        ((state + 7 * rank) % NUM_GENERATED, -0.5 - rank * (1 + state % 13) / 4 - (state % 99_991) / 1e6)
        for rank in range(num_candidates)
    ]


class FakeRunner:
    """Implements ``batch.Runner`` and checks everything ``StepBatch`` promises."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.encoder: Encoder | None = None
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.poison: set[int] = set()
        """Tokens whose sequence cannot be run: the rows before it have been when the step raises."""
        self.batches: list[StepBatch] = []
        self.failures: dict[int, str] = {}
        """Sequence ids whose logits are NaN."""
        self.error: Exception | None = None
        self._states: list[int | None] = [None] * (num_blocks * block_size)
        self._next_positions: dict[int, tuple[int, int]] = {}
        """Position and index last sampled, of the sequences that were not forgotten since: a sampler that must not be
        asked twice."""

    @property
    def remembered(self) -> set[int]:
        """Sequences that were sampled and not yet forgotten."""
        return set(self._next_positions)

    def run(self, batch: StepBatch) -> list[Sampled]:
        self.batches.append(batch)
        if self.error is not None:
            raise self.error
        self._check(batch)
        begin, results = 0, []
        for row, end in enumerate(batch.query_ends):
            state = self._run_row(batch, row, begin, end)
            begin = end
            results += [self._sample(sample, state) for sample in batch.samples if sample.row == row]
        return results

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        size, before = self.block_size, list(self._states)
        assert len({destination for _, destination in pairs}) == len(pairs), "a block is copied to twice"
        for source, destination in pairs:
            self._states[destination * size : (destination + 1) * size] = before[source * size : (source + 1) * size]

    def _sample(self, sample: SampleRow, state: int) -> Sampled:
        sequence_id, position = sample.sequence_id, sample.position
        last = self._next_positions.get(sequence_id, (position, sample.index - 1))
        assert last < (position, sample.index), "a position was sampled twice"
        self._next_positions[sequence_id] = (position, sample.index)
        candidates = tuple(
            Candidate(token_id, score, -0.5) for token_id, score in beam_candidates(state, sample.num_candidates)
        )
        logprob = None if sample.num_logprobs is None else TokenLogprobs(-(state % 7) / 8, [], [])
        token_id = (state + sample.index) % NUM_GENERATED
        return Sampled(token_id, self.failures.get(sequence_id), logprob, candidates)

    def forget(self, sequence_id: int) -> None:
        self._next_positions.pop(sequence_id, None)

    def _run_row(self, batch: StepBatch, row: int, begin: int, end: int) -> int:
        table = batch.block_tables[row]
        state = -1
        if not self.poison.isdisjoint(batch.token_ids[begin:end]):
            raise RuntimeError("the kernel refuses this token")
        for place in range(begin, end):
            position = batch.positions[place]
            assert batch.slots[place] == self._slot(table, position)
            states = [self._states[self._slot(table, earlier)] for earlier in range(position)]
            assert None not in states, "a slot was read before it was written"
            state = next_state(states, batch.token_ids[place])
            self._states[batch.slots[place]] = state
        assert batch.positions[end - 1] + 1 == batch.kv_lengths[row]
        return state

    def _slot(self, table: list[int], position: int) -> int:
        return table[position // self.block_size] * self.block_size + position % self.block_size

    def _check(self, batch: StepBatch) -> None:
        num_tokens = len(batch.token_ids)
        assert num_tokens == len(batch.positions) == len(batch.slots) == batch.query_ends[-1] > 0
        assert len(batch.query_ends) == len(batch.kv_lengths) == len(batch.block_tables)
        assert len(set(batch.slots)) == num_tokens, "two tokens share a slot"
        assert [sample.row for sample in batch.samples] == sorted(sample.row for sample in batch.samples)
        for sample in batch.samples:
            assert sample.position == len(sample.output_token_ids)
            last = (sample.prompt_token_ids + sample.output_token_ids)[-1]
            assert batch.token_ids[batch.query_ends[sample.row] - 1] == last

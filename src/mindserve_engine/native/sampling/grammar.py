"""Which tokens a sequence's grammar allows next."""

from __future__ import annotations

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from mindserve_engine.grammar import GrammarInvalid
from mindserve_engine.native.batch import SampleRow


class GrammarState:
    """How far one sequence has come in its grammar."""

    def __init__(self, start: LLMatcher) -> None:
        self._matcher = start.deep_copy()
        self._num_outputs = 0

    def catch_up(self, output_token_ids: list[int]) -> None:
        """Follow the outputs that are new since the last call."""
        self._matcher.consume_tokens(output_token_ids[self._num_outputs :])
        self._num_outputs = len(output_token_ids)

    def allowed(self, vocab_size: int) -> Tensor:
        """[vocab_size] bool. After the grammar's end only end-of-sequence tokens are. Raises ``GrammarInvalid``."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            lines = self._matcher.get_error().splitlines() or ["it cannot go on"]
            raise GrammarInvalid(lines[0])
        mask = np.zeros(vocab_size, dtype=np.bool_)
        known = np.unpackbits(bits, bitorder="little")[:vocab_size]
        mask[: len(known)] = known
        return torch.from_numpy(mask)


class Grammars:
    """The states of all sequences that have a grammar."""

    def __init__(self) -> None:
        self._states: dict[int, GrammarState] = {}

    def allowed(self, row: SampleRow, vocab_size: int) -> Tensor:
        """[vocab_size] bool for the token that ``row`` draws. Raises ``GrammarInvalid``."""
        assert row.grammar is not None
        state = self._states.get(row.sequence_id)
        if state is None:
            state = self._states[row.sequence_id] = GrammarState(row.grammar)
        state.catch_up(row.output_token_ids)
        return state.allowed(vocab_size)

    def forget(self, sequence_id: int) -> None:
        self._states.pop(sequence_id, None)

"""The next token of each sequence in the batch, each by its own request's settings."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from mindserve_engine.grammar import GrammarInvalid
from mindserve_engine.native.batch import Candidates, Sampled, SampleRow
from mindserve_engine.native.sampling.bias import add_bias
from mindserve_engine.native.sampling.candidates import best_candidates
from mindserve_engine.native.sampling.draw import DrawRows, draw
from mindserve_engine.native.sampling.grammar import Grammars
from mindserve_engine.native.sampling.logprobs import Logprobs
from mindserve_engine.native.sampling.penalties import TokenHistory, has_penalties, penalise
from mindserve_engine.native.sampling.random_stream import uniform

_NOT_FINITE = "the model's output is not finite (NaN or infinity)"


class Sampler:
    """Keeps the token counts of the sequences that need them; everything else is in the rows."""

    def __init__(self) -> None:
        self._histories: dict[int, TokenHistory] = {}
        self._grammars = Grammars()

    def sample(self, logits: Tensor, rows: list[SampleRow]) -> list[Sampled]:
        """One result per row of ``logits`` [S, V]; may change the logits."""
        if not rows:
            return []
        logits = logits.float()
        logprobs = Logprobs(logits, rows)
        beams = self._candidates(logits, rows)
        failures = self._bind(logits, rows)
        add_bias(logits, [(line, row) for line, row in enumerate(rows) if not row.num_candidates])
        self._penalise(logits, rows)
        best = logits.max(dim=-1)
        finite = best.values.isfinite().tolist()
        tokens: list[int] = best.indices.tolist()
        drawn = [
            line
            for line, row in enumerate(rows)
            if row.params.temperature > 0 and finite[line] and not row.num_candidates
        ]
        if drawn:
            chosen = draw(_draw_rows(logits, best.values, rows, drawn))
            for line, token in zip(drawn, chosen, strict=True):
                tokens[line] = token
        results = [
            Sampled(token, logprobs=report) if ok else Sampled(0, failure=_NOT_FINITE)
            for token, ok, report in zip(tokens, finite, logprobs.report(tokens), strict=True)
        ]
        for line, failure in failures.items():
            results[line] = Sampled(0, failure=failure)
        for line, candidates in beams.items():
            results[line] = replace(results[line], candidates=candidates)
        return results

    def forget(self, sequence_id: int) -> None:
        self._histories.pop(sequence_id, None)
        self._grammars.forget(sequence_id)

    def _bind(self, logits: Tensor, rows: list[SampleRow]) -> dict[int, str]:
        """Rule out what the rows' grammars do not allow; tells of the rows for which that fails, by line."""
        failures: dict[int, str] = {}
        for line, row in enumerate(rows):
            if row.grammar is None:
                continue
            try:
                allowed = self._grammars.allowed(row, logits.shape[1])
            except GrammarInvalid as error:
                failures[line] = f"its grammar cannot be followed any further: {error}"
            else:
                logits[line].masked_fill_(~allowed, -math.inf)
        return failures

    def _candidates(self, logits: Tensor, rows: list[SampleRow]) -> dict[int, Candidates]:
        """Of the rows of beams, by line."""
        lines = [line for line, row in enumerate(rows) if row.num_candidates]
        if not lines:
            return {}
        beams = [rows[line] for line in lines]
        histories = [self._history(row) if has_penalties(row.params) else None for row in beams]
        return dict(zip(lines, best_candidates(logits[lines], beams, histories), strict=True))

    def _penalise(self, logits: Tensor, rows: list[SampleRow]) -> None:
        penalised = [
            (line, row, self._history(row))
            for line, row in enumerate(rows)
            if has_penalties(row.params) and not row.num_candidates
        ]
        if penalised:
            penalise(logits, penalised)

    def _history(self, row: SampleRow) -> TokenHistory:
        history = self._histories.get(row.sequence_id)
        if history is None:
            history = self._histories[row.sequence_id] = TokenHistory(row.prompt_token_ids)
        history.catch_up(row.output_token_ids)
        return history


def _draw_rows(logits: Tensor, best: Tensor, rows: list[SampleRow], drawn: list[int]) -> DrawRows:
    chosen = [rows[line] for line in drawn]
    everything = len(drawn) == len(rows)
    return DrawRows(
        logits=logits if everything else logits[drawn],
        best=best if everything else best[drawn],
        temperature=[row.params.temperature for row in chosen],
        top_k=[row.params.top_k for row in chosen],
        top_p=[row.params.top_p for row in chosen],
        uniform=[uniform(seed=row.params.seed, index=row.index, position=row.position) for row in chosen],
    )

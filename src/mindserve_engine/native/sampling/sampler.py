"""The next token of each sequence in the batch, each by its own request's settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mindserve_engine.grammar import GrammarInvalid
from mindserve_engine.native.batch import Candidates, Sampled, SampleRow
from mindserve_engine.native.device.placing import HostBuffer
from mindserve_engine.native.sampling.bias import add_bias
from mindserve_engine.native.sampling.candidates import best_candidates
from mindserve_engine.native.sampling.draw import DrawSettings, draw, place_rows, redraw
from mindserve_engine.native.sampling.grammar import Grammars
from mindserve_engine.native.sampling.host_copy import HostCopy, Read
from mindserve_engine.native.sampling.logprobs import Logprobs
from mindserve_engine.native.sampling.penalties import TokenHistory, has_penalties, penalise
from mindserve_engine.native.sampling.place import Place, placing, words
from mindserve_engine.native.sampling.random_stream import uniform

_NOT_FINITE = "the model's output is not finite (NaN or infinity)"


class Sampler:
    """Keeps the token counts of the sequences that need them; everything else is in the rows."""

    def __init__(self, sum_dtype: torch.dtype = torch.float64, host_buffer: HostBuffer = words) -> None:
        """``sum_dtype``: the widest type in which the device sums. ``host_buffer``: ``Device.host_buffer``."""
        self._sum_dtype = sum_dtype
        self._host_buffer = host_buffer
        self._histories: dict[int, TokenHistory] = {}
        self._grammars = Grammars()

    def sample(self, logits: Tensor, rows: list[SampleRow]) -> list[Sampled]:
        """One result per row of ``logits`` [S, V]; may change the logits. Waits for the device once, and once more
        where a distribution is very flat. What goes there is not waited for."""
        if not rows:
            return []
        logits = logits.float()
        copy, place = HostCopy(), placing(logits.device, self._host_buffer)
        logprobs = Logprobs(logits, rows, place)
        top = logprobs.ask_largest(copy)
        beams = self._candidates(logits, rows, copy, place)
        failures = self._bind(logits, rows, place)
        add_bias(logits, [(line, row) for line, row in enumerate(rows) if not row.num_candidates], place)
        self._penalise(logits, rows, place)
        best = logits.max(dim=-1)
        finite = copy.ask(best.values.isfinite())
        tokens, taken = self._draw(logits, best.values, best.indices, rows, logprobs, copy, finite, place)
        results = [
            Sampled(token, logprobs=report) if ok else Sampled(0, failure=_NOT_FINITE)
            for token, ok, report in zip(tokens(), finite(), logprobs.report(taken, top), strict=True)
        ]
        for line, failure in failures.items():
            results[line] = Sampled(0, failure=failure)
        for line, candidates in beams().items():
            results[line] = replace(results[line], candidates=candidates)
        return results

    def _draw(
        self,
        logits: Tensor,
        best: Tensor,
        tokens: Tensor,
        rows: list[SampleRow],
        logprobs: Logprobs,
        copy: HostCopy,
        finite: Read,
        place: Place,
    ) -> tuple[Read, Callable[[], list[float]]]:
        """Fetch the tokens of all rows, drawn where they are (``tokens`` [S]: the likeliest of each), and their
        log-probabilities; with them all that has been asked for."""
        drawn = [line for line, row in enumerate(rows) if row.params.temperature > 0 and not row.num_candidates]
        if not drawn:
            return _fetch(tokens, logprobs, copy)
        lines: Tensor | None = None
        if len(drawn) < len(rows):
            [lines] = place((drawn, torch.int64))
            logits, best = logits.index_select(0, lines), best.index_select(0, lines)
        draws, groups = place_rows(logits, best, [_settings(rows[line]) for line in drawn], self._sum_dtype, place)
        chosen = draw(draws, groups)
        tokens = _put(tokens, lines, chosen.tokens)
        too_flat: Read = list if chosen.too_flat is None else copy.ask(chosen.too_flat)
        found = _fetch(tokens, logprobs, copy)
        again = [row for row, is_flat in enumerate(too_flat()) if is_flat and finite()[drawn[row]]]
        if not again:
            return found
        index, lines = place((again, torch.int64), ([drawn[row] for row in again], torch.int64))
        return _fetch(_put(tokens, lines, redraw(draws.select(again, index))), logprobs, copy)

    def forget(self, sequence_id: int) -> None:
        self._histories.pop(sequence_id, None)
        self._grammars.forget(sequence_id)

    def _bind(self, logits: Tensor, rows: list[SampleRow], place: Place) -> dict[int, str]:
        """Rule out what the rows' grammars do not allow; tells of the rows for which that fails, by line."""
        failures: dict[int, str] = {}
        ruled_out: dict[int, Tensor] = {}
        for line, row in enumerate(rows):
            if row.grammar is None:
                continue
            try:
                allowed = self._grammars.allowed(row, logits.shape[1])
            except GrammarInvalid as error:
                failures[line] = f"its grammar cannot be followed any further: {error}"
            else:
                ruled_out[line] = ~allowed
        masks = place(*((mask.numpy(), torch.bool) for mask in ruled_out.values())) if ruled_out else []
        for line, mask in zip(ruled_out, masks, strict=True):
            logits[line].masked_fill_(mask, -math.inf)
        return failures

    def _candidates(
        self, logits: Tensor, rows: list[SampleRow], copy: HostCopy, place: Place
    ) -> Callable[[], dict[int, Candidates]]:
        """Of the rows of beams, by line."""
        lines = [line for line, row in enumerate(rows) if row.num_candidates]
        if not lines:
            return dict
        beams = [rows[line] for line in lines]
        histories = [self._history(row) if has_penalties(row.params) else None for row in beams]
        [index] = place((lines, torch.int64))
        of_beams = logits.index_select(0, index)
        read = best_candidates(of_beams, beams, histories, copy, self._sum_dtype, place)
        return lambda: dict(zip(lines, read(), strict=True))

    def _penalise(self, logits: Tensor, rows: list[SampleRow], place: Place) -> None:
        penalised = [
            (line, row, self._history(row))
            for line, row in enumerate(rows)
            if has_penalties(row.params) and not row.num_candidates
        ]
        if penalised:
            penalise(logits, penalised, self._sum_dtype, place)

    def _history(self, row: SampleRow) -> TokenHistory:
        history = self._histories.get(row.sequence_id)
        if history is None:
            history = self._histories[row.sequence_id] = TokenHistory(row.prompt_token_ids)
        history.catch_up(row.output_token_ids)
        return history


def _fetch(tokens: Tensor, logprobs: Logprobs, copy: HostCopy) -> tuple[Read, Callable[[], list[float]]]:
    asked = copy.ask(tokens), logprobs.ask_taken(tokens, copy)
    copy.fetch()
    return asked


def _put(tokens: Tensor, lines: Tensor | None, drawn: Tensor) -> Tensor:
    """``tokens`` [S] with those of ``lines`` replaced; ``None``: all."""
    return drawn if lines is None else tokens.index_copy(0, lines, drawn)


def _settings(row: SampleRow) -> DrawSettings:
    return DrawSettings(
        temperature=row.params.temperature,
        top_k=row.params.top_k,
        top_p=row.params.top_p,
        uniform=uniform(seed=row.params.seed, index=row.index, position=row.position),
    )

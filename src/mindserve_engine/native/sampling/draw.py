"""Drawing one token from each row of logits by inversion of the cumulative distribution.

One uniform number per row decides. Sums run in float64 where the device has it, each row for itself, so that neither
the neighbours in the batch nor their settings can move a row's result. Nothing here waits for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_SEGMENT: Final = 256
"""Tokens summed together before the search looks inside one segment: a float64 running sum over a whole vocabulary
would cost more than the rest of sampling."""
_FEWEST_CANDIDATES: Final = 64
_NUCLEUS_CANDIDATES: Final = 1024
"""Tried first for top-p without top-k; a flatter distribution falls back to a full sort."""
_TEMPERATURES: Final = (torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max)
"""Those beyond are taken for these: nothing may be divided by zero, nor the infinity of a masked token by another."""


@dataclass(slots=True)
class DrawRows:
    """R rows to draw from. One whose largest logit is not finite gives a token that means nothing."""

    logits: Tensor
    """[R, V] float32."""
    best: Tensor
    """[R] each row's largest logit."""
    temperature: list[float]
    """Above 0."""
    top_k: list[int]
    """0 keeps all."""
    top_p: list[float]
    uniform: list[float]
    sum_dtype: torch.dtype

    def select(self, rows: list[int]) -> DrawRows:
        index = torch.tensor(rows).to(self.logits.device)
        return DrawRows(
            self.logits.index_select(0, index),
            self.best.index_select(0, index),
            [self.temperature[row] for row in rows],
            [self.top_k[row] for row in rows],
            [self.top_p[row] for row in rows],
            [self.uniform[row] for row in rows],
            self.sum_dtype,
        )

    def numbers(self, values: list[float]) -> Tensor:
        """[R] of the rows, in the type of sums."""
        return torch.tensor(values, dtype=self.sum_dtype).to(self.logits.device)

    def weights(self, logits: Tensor) -> Tensor:
        """Unnormalised probabilities of [R, n] logits of these rows; 1 for the most probable token.

        The largest logit is taken off first: whatever the temperature, nothing overflows."""
        temperature = torch.tensor(self.temperature, dtype=torch.float64).clamp(*_TEMPERATURES).to(torch.float32)
        return torch.exp((logits - self.best[:, None]) / temperature.to(logits.device)[:, None])


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token for each row."""

    tokens: Tensor
    """[R] int64."""
    too_flat: Tensor | None
    """[R] bool: rows whose likeliest tokens did not reach top_p; ``redraw`` them. ``None``: there can be none."""


def draw(rows: DrawRows) -> Drawn:
    """Which rows are computed together depends on their settings."""
    vocab_size = rows.logits.shape[1]
    by_width: dict[int, list[int]] = {}
    for row, (top_k, top_p) in enumerate(zip(rows.top_k, rows.top_p, strict=True)):
        by_width.setdefault(_num_candidates(top_k, top_p, vocab_size), []).append(row)
    if len(by_width) == 1:
        return _draw(rows, next(iter(by_width)))
    device = rows.logits.device
    tokens = torch.zeros(len(rows.uniform), dtype=torch.int64, device=device)
    too_flat = torch.zeros(len(rows.uniform), dtype=torch.bool, device=device)
    for width, members in sorted(by_width.items()):
        drawn, places = _draw(rows.select(members), width), torch.tensor(members).to(device)
        tokens.index_copy_(0, places, drawn.tokens)
        if drawn.too_flat is not None:
            too_flat.index_copy_(0, places, drawn.too_flat)
    return Drawn(tokens, too_flat)


def redraw(rows: DrawRows) -> Tensor:
    """[R] tokens, with the whole vocabulary sorted."""
    return _draw_from_top(rows, rows.logits.shape[1]).tokens


def _draw(rows: DrawRows, width: int) -> Drawn:
    return _draw_from_top(rows, width) if width else Drawn(_draw_from_all(rows), None)


def _num_candidates(top_k: int, top_p: float, vocab_size: int) -> int:
    """How many of the most probable tokens to look at; 0: the whole vocabulary, unsorted. Powers of two, so that rows
    with like settings are computed together."""
    limited = 0 < top_k < vocab_size
    if not limited and top_p >= 1:
        return 0
    wanted = top_k if limited else _NUCLEUS_CANDIDATES
    return min(vocab_size, max(_FEWEST_CANDIDATES, 1 << (wanted - 1).bit_length()))


def _draw_from_all(rows: DrawRows) -> Tensor:
    segments, running = _running_sums(rows, rows.weights(rows.logits))
    target = running[:, -1] * rows.numbers(rows.uniform)
    segment = _first_above(running, target, running[:, -1])
    before = functional.pad(running, (1, 0)).gather(1, segment[:, None])[:, 0]
    chosen = segments[torch.arange(len(segment), device=segment.device), segment]
    inner = chosen.to(rows.sum_dtype).cumsum(dim=-1)
    token = segment * _SEGMENT + _first_above(inner, target - before, inner[:, -1])
    return token.clamp_max(rows.logits.shape[1] - 1)


def _running_sums(rows: DrawRows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """[R, V] -> the segments [R, n, 256], zeros at the end, and the wide sums up to the end of each [R, n].

    Of a single long row torch would share one sum out among its threads, in another order than that of several rows."""
    padded = functional.pad(weights, (0, -weights.shape[1] % _SEGMENT))
    segments = padded.view(len(weights), -1, _SEGMENT)
    return segments, segments.sum(dim=-1, dtype=rows.sum_dtype).cumsum(dim=-1)


def _draw_from_top(rows: DrawRows, width: int) -> Drawn:
    """Among the ``width`` most probable tokens: the first top_k, of these the smallest set that reaches top_p."""
    vocab_size = rows.logits.shape[1]
    candidates = rows.logits.topk(width, dim=-1)
    running = rows.weights(candidates.values).to(rows.sum_dtype).cumsum(dim=-1)
    allowed = [k if 0 < k < vocab_size else vocab_size for k in rows.top_k]
    num_allowed = torch.tensor(allowed).to(rows.logits.device)
    last = num_allowed.clamp_max(width) - 1
    total = running.gather(1, last[:, None])[:, 0]
    may_be_flat = width < vocab_size and vocab_size in allowed
    if may_be_flat:
        _, everything = _running_sums(rows, rows.weights(rows.logits))
        total = torch.where(num_allowed == vocab_size, everything[:, -1], total)
    enough = total * rows.numbers(rows.top_p)
    # A token stays while those before it have not reached top_p: the most probable one always does.
    kept = (functional.pad(running[:, :-1], (1, 0)) < enough[:, None]).sum(dim=-1)
    last = torch.minimum(last, kept.clamp_min(1) - 1)
    kept_total = running.gather(1, last[:, None])[:, 0]
    target = kept_total * rows.numbers(rows.uniform)
    place = torch.minimum(_first_above(running, target, kept_total), last)
    tokens = candidates.indices.gather(1, place[:, None])[:, 0]
    return Drawn(tokens, (num_allowed == vocab_size) & (running[:, -1] < enough) if may_be_flat else None)


def _first_above(running: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """[R] the first place where the running sum exceeds the target; when rounding put the target at the total, the
    place that completes the total. Either way a place with weight. Sums that are no numbers give the last place."""
    above = torch.searchsorted(running, target[:, None].contiguous(), right=True)[:, 0]
    completes = torch.searchsorted(running, total[:, None].contiguous())[:, 0]
    return torch.minimum(above, completes).clamp_max(running.shape[1] - 1)

"""Drawing one token from each row of logits by inversion of the cumulative distribution.

One uniform number per row decides. Sums run in float64, each row for itself, so that neither the neighbours in the
batch nor their settings can move a row's result."""

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
    """R rows to draw from."""

    logits: Tensor
    """[R, V] float32."""
    best: Tensor
    """[R] each row's largest logit, finite."""
    temperature: list[float]
    """Above 0."""
    top_k: list[int]
    """0 keeps all."""
    top_p: list[float]
    uniform: list[float]

    def select(self, rows: list[int]) -> DrawRows:
        return DrawRows(
            self.logits[rows],
            self.best[rows],
            [self.temperature[row] for row in rows],
            [self.top_k[row] for row in rows],
            [self.top_p[row] for row in rows],
            [self.uniform[row] for row in rows],
        )

    def weights(self, logits: Tensor) -> Tensor:
        """Unnormalised probabilities of [R, n] logits of these rows; 1 for the most probable token.

        The largest logit is taken off first: whatever the temperature, nothing overflows."""
        temperature = torch.tensor(self.temperature, dtype=torch.float64, device=logits.device)
        temperature = temperature.clamp(*_TEMPERATURES).to(torch.float32)
        return torch.exp((logits - self.best[:, None]) / temperature[:, None])


def draw(rows: DrawRows) -> list[int]:
    """One token id per row."""
    vocab_size = rows.logits.shape[1]
    tokens = [0] * len(rows.uniform)
    by_width: dict[int, list[int]] = {}
    for row, (top_k, top_p) in enumerate(zip(rows.top_k, rows.top_p, strict=True)):
        by_width.setdefault(_num_candidates(top_k, top_p, vocab_size), []).append(row)
    for width, members in sorted(by_width.items()):
        part = rows if len(members) == len(tokens) else rows.select(members)
        drawn = _draw_from_all(part) if not width else _draw_from_top(part, width)
        for row, token in zip(members, drawn, strict=True):
            tokens[row] = token
    return tokens


def _num_candidates(top_k: int, top_p: float, vocab_size: int) -> int:
    """How many of the most probable tokens to look at; 0: the whole vocabulary, unsorted. Powers of two, so that rows
    with like settings are computed together."""
    limited = 0 < top_k < vocab_size
    if not limited and top_p >= 1:
        return 0
    wanted = top_k if limited else _NUCLEUS_CANDIDATES
    return min(vocab_size, max(_FEWEST_CANDIDATES, 1 << (wanted - 1).bit_length()))


def _draw_from_all(rows: DrawRows) -> list[int]:
    segments, running = _running_sums(rows.weights(rows.logits))
    target = running[:, -1] * torch.tensor(rows.uniform, dtype=torch.float64, device=running.device)
    segment = _first_above(running, target, running[:, -1])
    before = functional.pad(running, (1, 0)).gather(1, segment[:, None])[:, 0]
    chosen = segments[torch.arange(len(segment), device=segment.device), segment]
    inner = chosen.to(torch.float64).cumsum(dim=-1)
    token = segment * _SEGMENT + _first_above(inner, target - before, inner[:, -1])
    return [int(t) for t in token.tolist()]


def _running_sums(weights: Tensor) -> tuple[Tensor, Tensor]:
    """[R, V] -> the segments [R, n, 256], zeros at the end, and the float64 sums up to the end of each [R, n].

    Of a single long row torch would share one sum out among its threads, in another order than that of several rows."""
    padded = functional.pad(weights, (0, -weights.shape[1] % _SEGMENT))
    segments = padded.view(len(weights), -1, _SEGMENT)
    return segments, segments.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)


def _draw_from_top(rows: DrawRows, width: int) -> list[int]:
    """Among the ``width`` most probable tokens: the first top_k, of these the smallest set that reaches top_p."""
    vocab_size = rows.logits.shape[1]
    candidates = rows.logits.topk(width, dim=-1)
    device = rows.logits.device
    running = rows.weights(candidates.values).to(torch.float64).cumsum(dim=-1)
    num_allowed = torch.tensor([k if 0 < k < vocab_size else vocab_size for k in rows.top_k], device=device)
    last = num_allowed.clamp_max(width) - 1
    total = running.gather(1, last[:, None])[:, 0]
    if width < vocab_size and vocab_size in num_allowed:
        _, everything = _running_sums(rows.weights(rows.logits))
        total = torch.where(num_allowed == vocab_size, everything[:, -1], total)
    enough = total * torch.tensor(rows.top_p, dtype=torch.float64, device=device)
    # A token stays while those before it have not reached top_p: the most probable one always does.
    kept = (functional.pad(running[:, :-1], (1, 0)) < enough[:, None]).sum(dim=-1)
    last = torch.minimum(last, kept.clamp_min(1) - 1)
    kept_total = running.gather(1, last[:, None])[:, 0]
    target = kept_total * torch.tensor(rows.uniform, dtype=torch.float64, device=device)
    place = torch.minimum(_first_above(running, target, kept_total), last)
    tokens = [int(t) for t in candidates.indices.gather(1, place[:, None])[:, 0].tolist()]
    too_flat = (num_allowed == vocab_size) & (running[:, -1] < enough) & (width < vocab_size)
    for row in torch.nonzero(too_flat)[:, 0].tolist():
        tokens[row] = _draw_from_top(rows.select([row]), vocab_size)[0]
    return tokens


def _first_above(running: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """[R] the first place where the running sum exceeds the target; when rounding put the target at the total, the
    place that completes the total. Either way a place with weight."""
    above = torch.searchsorted(running, target[:, None].contiguous(), right=True)[:, 0]
    completes = torch.searchsorted(running, total[:, None].contiguous())[:, 0]
    return torch.minimum(above, completes)

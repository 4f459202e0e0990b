"""Drawing one token from each row of logits by inversion of the cumulative distribution.

One uniform number per row decides. Sums run in float64 where the device has it, each row for itself, so that neither
the neighbours in the batch nor their settings can move a row's result. Nothing here waits for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.sampling.place import Place

_SEGMENT: Final = 256
"""Tokens summed together before the search looks inside one segment: a float64 running sum over a whole vocabulary
would cost more than the rest of sampling."""
_FEWEST_CANDIDATES: Final = 64
_NUCLEUS_CANDIDATES: Final = 1024
"""Tried first for top-p without top-k; a flatter distribution falls back to a full sort."""
_TEMPERATURES: Final = (torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max)
"""Those beyond are taken for these: nothing may be divided by zero, nor the infinity of a masked token by another."""


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """One row's."""

    temperature: float
    """Above 0."""
    top_k: int
    """0 keeps all."""
    top_p: float
    uniform: float


@dataclass(slots=True)
class DrawRows:
    """R rows to draw from. One whose largest logit is not finite gives a token that means nothing."""

    logits: Tensor
    """[R, V] float32."""
    best: Tensor
    """[R] each row's largest logit."""
    temperature: Tensor
    """[R] float32, above 0."""
    num_allowed: Tensor
    """[R] int64: top_k, or the size of the vocabulary."""
    top_p: Tensor
    """[R] in the type of sums."""
    uniform: Tensor
    """[R] in the type of sums."""
    settings: list[DrawSettings]
    """What these came from, on the host."""

    def select(self, rows: list[int], index: Tensor) -> DrawRows:
        """``index``: ``rows`` on the device."""
        return DrawRows(
            logits=self.logits.index_select(0, index),
            best=self.best.index_select(0, index),
            temperature=self.temperature.index_select(0, index),
            num_allowed=self.num_allowed.index_select(0, index),
            top_p=self.top_p.index_select(0, index),
            uniform=self.uniform.index_select(0, index),
            settings=[self.settings[row] for row in rows],
        )

    def weights(self, logits: Tensor) -> Tensor:
        """Unnormalised probabilities of [R, n] logits of these rows; 1 for the most probable token.

        The largest logit is taken off first: whatever the temperature, nothing overflows."""
        return torch.exp((logits - self.best[:, None]) / self.temperature[:, None])


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token for each row."""

    tokens: Tensor
    """[R] int64."""
    too_flat: Tensor | None
    """[R] bool: rows whose likeliest tokens did not reach top_p; ``redraw`` them. ``None``: there can be none."""


def place_rows(
    logits: Tensor, best: Tensor, settings: list[DrawSettings], sum_dtype: torch.dtype, place: Place
) -> tuple[DrawRows, dict[int, Tensor]]:
    """The rows of ``logits`` [R, V] with ``settings``; and by width (``_num_candidates``) which are drawn together."""
    vocab_size = logits.shape[1]
    temperature = np.clip([one.temperature for one in settings], *_TEMPERATURES)
    allowed = [one.top_k if 0 < one.top_k < vocab_size else vocab_size for one in settings]
    by_width = _by_width(settings, vocab_size)
    *numbers, top_p, uniform = place(
        *((members, torch.int64) for members in by_width.values()),
        (temperature, torch.float32),
        (allowed, torch.int64),
        ([one.top_p for one in settings], sum_dtype),
        ([one.uniform for one in settings], sum_dtype),
    )
    temperatures, num_allowed = numbers[-2:]
    groups = dict(zip(by_width, numbers[:-2], strict=True))
    return DrawRows(logits, best, temperatures, num_allowed, top_p, uniform, settings), groups


def _by_width(settings: list[DrawSettings], vocab_size: int) -> dict[int, list[int]]:
    by_width: dict[int, list[int]] = {}
    for row, one in enumerate(settings):
        by_width.setdefault(_num_candidates(one.top_k, one.top_p, vocab_size), []).append(row)
    return dict(sorted(by_width.items()))


def draw(rows: DrawRows, groups: dict[int, Tensor]) -> Drawn:
    """Which rows are computed together depends on their settings: as ``place_rows`` gives them."""
    if len(groups) == 1:
        return _draw(rows, next(iter(groups)))
    by_width = _by_width(rows.settings, rows.logits.shape[1])
    device = rows.logits.device
    tokens = torch.zeros(len(rows.settings), dtype=torch.int64, device=device)
    too_flat = torch.zeros(len(rows.settings), dtype=torch.bool, device=device)
    for width, places in groups.items():
        drawn = _draw(rows.select(by_width[width], places), width)
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
    target = running[:, -1] * rows.uniform
    segment = _first_above(running, target, running[:, -1])
    before = functional.pad(running, (1, 0)).gather(1, segment[:, None])[:, 0]
    chosen = segments[torch.arange(len(segment), device=segment.device), segment]
    inner = chosen.to(rows.uniform.dtype).cumsum(dim=-1)
    token = segment * _SEGMENT + _first_above(inner, target - before, inner[:, -1])
    return token.clamp_max(rows.logits.shape[1] - 1)


def _running_sums(rows: DrawRows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """[R, V] -> the segments [R, n, 256], zeros at the end, and the wide sums up to the end of each [R, n].

    Of a single long row torch would share one sum out among its threads, in another order than that of several rows."""
    padded = functional.pad(weights, (0, -weights.shape[1] % _SEGMENT))
    segments = padded.view(len(weights), -1, _SEGMENT)
    return segments, segments.sum(dim=-1, dtype=rows.uniform.dtype).cumsum(dim=-1)


def _draw_from_top(rows: DrawRows, width: int) -> Drawn:
    """Among the ``width`` most probable tokens: the first top_k, of these the smallest set that reaches top_p."""
    vocab_size = rows.logits.shape[1]
    candidates = rows.logits.topk(width, dim=-1)
    running = rows.weights(candidates.values).to(rows.uniform.dtype).cumsum(dim=-1)
    last = rows.num_allowed.clamp_max(width) - 1
    total = running.gather(1, last[:, None])[:, 0]
    may_be_flat = width < vocab_size and any(not 0 < one.top_k < vocab_size for one in rows.settings)
    if may_be_flat:
        _, everything = _running_sums(rows, rows.weights(rows.logits))
        total = torch.where(rows.num_allowed == vocab_size, everything[:, -1], total)
    enough = total * rows.top_p
    # A token stays while those before it have not reached top_p: the most probable one always does.
    kept = (functional.pad(running[:, :-1], (1, 0)) < enough[:, None]).sum(dim=-1)
    last = torch.minimum(last, kept.clamp_min(1) - 1)
    kept_total = running.gather(1, last[:, None])[:, 0]
    target = kept_total * rows.uniform
    place = torch.minimum(_first_above(running, target, kept_total), last)
    tokens = candidates.indices.gather(1, place[:, None])[:, 0]
    return Drawn(tokens, (rows.num_allowed == vocab_size) & (running[:, -1] < enough) if may_be_flat else None)


def _first_above(running: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """[R] the first place where the running sum exceeds the target; when rounding put the target at the total, the
    place that completes the total. Either way a place with weight. Sums that are no numbers give the last place."""
    above = torch.searchsorted(running, target[:, None].contiguous(), right=True)[:, 0]
    completes = torch.searchsorted(running, total[:, None].contiguous())[:, 0]
    return torch.minimum(above, completes).clamp_max(running.shape[1] - 1)

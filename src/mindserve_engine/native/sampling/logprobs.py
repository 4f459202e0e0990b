"""Log-probabilities of the model's own distribution, for requests that want to see or rank by them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mindserve_engine.native.batch import SampleRow
from mindserve_engine.native.sampling.host_copy import HostCopy
from mindserve_engine.native.sampling.place import Place, on_host
from mindserve_engine.types import LOGPROB_FLOOR, TokenLogprobs

Largest = Callable[[], list[tuple[list[int], list[float], list[float]]]]
"""For each row the places of its largest values, these, the largest first, and what another tensor has there."""


class Logprobs:
    """Of the rows of one step that want them, taken before penalties change the logits."""

    def __init__(self, logits: Tensor, rows: list[SampleRow], place: Place = on_host) -> None:
        """``logits`` [S, V] float32, one row for each of ``rows``."""
        self._rows = rows
        self._place = place
        self._lines = [line for line, row in enumerate(rows) if row.num_logprobs is not None]
        self._index: Tensor | None = None
        """``None``: all."""
        if 0 < len(self._lines) < len(rows):
            [self._index] = place((self._lines, torch.int64))
        self._of_lines = log_softmax(_rows_at(logits, self._index)) if self._lines else None

    def ask_largest(self, copy: HostCopy) -> Largest:
        """The likeliest tokens of the rows that want them."""
        if self._of_lines is None:
            return list
        return largest(
            self._of_lines,
            [self._rows[line].num_logprobs or 0 for line in self._lines],
            copy,
            self._place,
            of=self._of_lines,
        )

    def ask_taken(self, tokens: Tensor, copy: HostCopy) -> Callable[[], list[float]]:
        """The log-probabilities at the ``tokens`` [S] of those rows."""
        if self._of_lines is None:
            return list
        return copy.ask(self._of_lines.gather(1, _rows_at(tokens, self._index)[:, None])[:, 0])

    def report(self, taken: Callable[[], list[float]], top: Largest) -> list[TokenLogprobs | None]:
        """What the two gave, for each row; ``None`` where nobody asked."""
        found: list[TokenLogprobs | None] = [None] * len(self._rows)
        for line, logprob, (ids, values, _) in zip(self._lines, taken(), top(), strict=True):
            found[line] = TokenLogprobs(logprob, ids, values)
        return found


def _rows_at(tensor: Tensor, index: Tensor | None) -> Tensor:
    return tensor if index is None else tensor.index_select(0, index)


def largest(values: Tensor, nums: list[int], copy: HostCopy, place: Place, *, of: Tensor) -> Largest:
    """For each row of ``values`` [S, V] its ``nums[row]`` largest, and what ``of`` [S, V] has in their places.

    Which of equal values comes first depends on how many are asked for, so no row is searched for more than its own
    number: what a neighbour wants must not change it."""
    asked = []
    by_num = {num: [row for row, wanted in enumerate(nums) if wanted == num] for num in sorted(set(nums) - {0})}
    some = [rows for rows in by_num.values() if len(rows) < len(nums)]
    indices = iter(place(*((rows, torch.int64) for rows in some)) if some else ())
    for num, rows in by_num.items():
        index = next(indices) if len(rows) < len(nums) else None
        part = _rows_at(values, index)
        other = part if values is of else _rows_at(of, index)
        top = part.topk(min(num, values.shape[1]), dim=-1)
        best = copy.ask(top.values)
        there = best if values is of else copy.ask(other.gather(1, top.indices))
        asked.append((rows, copy.ask(top.indices), best, there))

    def read() -> list[tuple[list[int], list[float], list[float]]]:
        found: list[tuple[list[int], list[float], list[float]]] = [([], [], [])] * len(nums)
        for rows, places, best, there in asked:
            for row, *lists in zip(rows, places(), best(), there(), strict=True):
                found[row] = tuple(lists)
        return found

    return read


def log_softmax(logits: Tensor) -> Tensor:
    """[S, V] natural logarithms, none below ``LOGPROB_FLOOR``: what the model rules out stays a number."""
    return torch.log_softmax(logits, dim=-1).clamp_min_(LOGPROB_FLOOR)

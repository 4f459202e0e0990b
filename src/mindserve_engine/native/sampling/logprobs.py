"""Log-probabilities of the model's own distribution, for requests that want to see or rank by them."""

from __future__ import annotations

import torch
from torch import Tensor

from mindserve_engine.native.batch import SampleRow
from mindserve_engine.types import LOGPROB_FLOOR, TokenLogprobs


class Logprobs:
    """Of the rows of one step that want them, taken before penalties change the logits."""

    def __init__(self, logits: Tensor, rows: list[SampleRow]) -> None:
        """``logits`` [S, V] float32, one row for each of ``rows``."""
        self._rows = rows
        lines = [line for line, row in enumerate(rows) if row.num_logprobs is not None]
        self._place = {line: place for place, line in enumerate(lines)}
        self._of_lines = log_softmax(logits if len(lines) == len(rows) else logits[lines]) if lines else None

    def report(self, tokens: list[int]) -> list[TokenLogprobs | None]:
        """For each row the log-probabilities at its token and of its likeliest ones; ``None`` where nobody asked."""
        if self._of_lines is None:
            return [None] * len(tokens)
        lines = list(self._place)
        taken = self._of_lines[torch.arange(len(lines)), torch.tensor([tokens[line] for line in lines])].tolist()
        top = largest(self._of_lines, [self._rows[line].num_logprobs or 0 for line in lines])
        found: list[TokenLogprobs | None] = [None] * len(tokens)
        for line, logprob, (ids, values) in zip(lines, taken, top, strict=True):
            found[line] = TokenLogprobs(logprob, ids, values)
        return found


def largest(values: Tensor, nums: list[int]) -> list[tuple[list[int], list[float]]]:
    """For each row of ``values`` [S, V] the places of its ``nums[row]`` largest, and these, the largest first.

    Which of equal values comes first depends on how many are asked for, so no row is searched for more than its own
    number: what a neighbour wants must not change it."""
    found: list[tuple[list[int], list[float]]] = [([], [])] * len(nums)
    for num in sorted(set(nums) - {0}):
        rows = [row for row, wanted in enumerate(nums) if wanted == num]
        part = values if len(rows) == len(nums) else values[rows]
        top = part.topk(min(num, values.shape[1]), dim=-1)
        for row, ids, best in zip(rows, top.indices.tolist(), top.values.tolist(), strict=True):
            found[row] = ids, best
    return found


def log_softmax(logits: Tensor) -> Tensor:
    """[S, V] natural logarithms, none below ``LOGPROB_FLOOR``: what the model rules out stays a number."""
    return torch.log_softmax(logits, dim=-1).clamp_min_(LOGPROB_FLOOR)

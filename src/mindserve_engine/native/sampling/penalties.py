"""Repetition, presence and frequency penalties for a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from mindserve_engine.native.batch import SampleRow
from mindserve_engine.native.device.placing import Numbers
from mindserve_engine.native.sampling.place import Place, on_host
from mindserve_engine.types import SamplingParams

_LARGEST: Final = torch.finfo(torch.float32).max


class TokenHistory:
    """The distinct tokens of one sequence and how often it generated each."""

    def __init__(self, prompt_token_ids: list[int]) -> None:
        distinct = np.unique(np.asarray(prompt_token_ids, dtype=np.int64))
        self._place = {int(token): place for place, token in enumerate(distinct)}
        self._token_ids = distinct
        self._num_generated = np.zeros(len(distinct), dtype=np.int64)
        self._num_outputs = 0

    @property
    def token_ids(self) -> np.ndarray:
        """[n] distinct tokens of prompt and output."""
        return self._token_ids[: len(self._place)]

    @property
    def num_generated(self) -> np.ndarray:
        """[n] how often each was generated; 0 for those only in the prompt."""
        return self._num_generated[: len(self._place)]

    def catch_up(self, output_token_ids: list[int]) -> None:
        """Count the outputs that are new since the last call."""
        for token in output_token_ids[self._num_outputs :]:
            place = self._place.setdefault(token, len(self._place))
            if place == len(self._token_ids):
                self._grow()
            self._token_ids[place] = token
            self._num_generated[place] += 1
        self._num_outputs = len(output_token_ids)

    def _grow(self) -> None:
        spare = np.zeros(max(64, len(self._token_ids)), dtype=np.int64)
        self._token_ids = np.concatenate([self._token_ids, spare])
        self._num_generated = np.concatenate([self._num_generated, spare])


def has_penalties(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0


def penalise(
    logits: Tensor,
    rows: Sequence[tuple[int, SampleRow, TokenHistory]],
    dtype: torch.dtype = torch.float64,
    place: Place = on_host,
) -> None:
    """Change the logits [S, V] in place; ``rows`` names the line of each penalised sequence.

    Repetition first (transformers: negative logits times the penalty, others divided by it), then OpenAI's
    ``logit - presence * (count > 0) - frequency * count``. ``dtype`` is that of the arithmetic: the widest there is."""
    sizes = [len(history.token_ids) for _, _, history in rows]

    def spread(values: list[float], of_type: torch.dtype = dtype) -> tuple[Numbers, torch.dtype]:
        return np.repeat(values, sizes), of_type

    lines, tokens, counts, repetition, presence, frequency = place(
        spread([line for line, _, _ in rows], torch.int64),
        (np.concatenate([history.token_ids for _, _, history in rows]), torch.int64),
        (np.concatenate([history.num_generated for _, _, history in rows]), torch.int64),
        spread([row.params.repetition_penalty for _, row, _ in rows]),
        spread([row.params.presence_penalty for _, row, _ in rows]),
        spread([row.params.frequency_penalty for _, row, _ in rows]),
    )
    found = logits[lines, tokens].to(dtype)
    # Extreme penalties end at the largest float32, and never make an infinity or, of two, a NaN. An infinity or NaN
    # that is none of our doing stays.
    repeated = torch.where(found < 0, found * repetition, found / repetition)
    counted = (presence * (counts > 0) + frequency * counts).clamp(-_LARGEST, _LARGEST)
    bounded = (repeated - counted).clamp(-_LARGEST, _LARGEST)
    logits[lines, tokens] = torch.where(found.isfinite(), bounded, found).to(logits.dtype)

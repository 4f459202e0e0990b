"""The best continuations of beams."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mindserve_engine.native.batch import Candidates, SampleRow
from mindserve_engine.native.sampling.bias import add_bias
from mindserve_engine.native.sampling.host_copy import HostCopy
from mindserve_engine.native.sampling.logprobs import largest, log_softmax
from mindserve_engine.native.sampling.penalties import TokenHistory, penalise
from mindserve_engine.native.sampling.place import Place


def best_candidates(
    logits: Tensor,
    rows: list[SampleRow],
    histories: list[TokenHistory | None],
    copy: HostCopy,
    dtype: torch.dtype,
    place: Place,
) -> Callable[[], list[Candidates]]:
    """For each of ``rows`` (``logits`` [S, V], before bias and penalties) its ``num_candidates`` best continuations.

    Both are applied to log-probabilities, as transformers does in beam search; ``histories`` of rows that have
    none are ``None``. ``dtype`` is that of penalties."""
    own = log_softmax(logits)
    scores = own.clone()
    add_bias(scores, [*enumerate(rows)], place)
    penalised = [
        (line, row, history)
        for line, (row, history) in enumerate(zip(rows, histories, strict=True))
        if history is not None
    ]
    if penalised:
        penalise(scores, penalised, dtype, place)
    best = largest(scores, [row.num_candidates for row in rows], copy, place, of=own)
    return lambda: [Candidates(ids, values, logprobs) for ids, values, logprobs in best()]

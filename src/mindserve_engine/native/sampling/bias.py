"""What requests add to the logits of certain tokens, for a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mindserve_engine.native.batch import SampleRow
from mindserve_engine.native.sampling.place import Place, on_host


def add_bias(logits: Tensor, rows: Sequence[tuple[int, SampleRow]], place: Place = on_host) -> None:
    """Change the logits [S, V] in place; ``rows`` names the line of each sequence. What is ruled out stays so."""
    entries = [(line, token, bias) for line, row in rows for token, bias in row.params.logit_bias]
    if not entries:
        return
    lines, tokens, biases = zip(*entries, strict=True)
    at_lines, at_tokens, added = place((lines, torch.int64), (tokens, torch.int64), (biases, logits.dtype))
    logits[at_lines, at_tokens] += added

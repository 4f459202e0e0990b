"""What requests add to the logits of certain tokens, for a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mindserve_engine.native.batch import SampleRow


def add_bias(logits: Tensor, rows: Sequence[tuple[int, SampleRow]]) -> None:
    """Change the logits [S, V] in place; ``rows`` names the line of each sequence. What is ruled out stays so."""
    entries = [(line, token, bias) for line, row in rows for token, bias in row.params.logit_bias]
    if not entries:
        return
    lines, tokens, biases = zip(*entries, strict=True)
    places = torch.tensor(lines).to(logits.device), torch.tensor(tokens).to(logits.device)
    logits[places] += torch.tensor(biases, dtype=logits.dtype).to(logits.device)

"""The random numbers of sampling: a pure function of who asks, never of who else is in the batch."""

from __future__ import annotations

from typing import Final

import numpy as np

_DOUBLE_BITS: Final = 53


def uniform(*, seed: int, index: int, position: int) -> float:
    """A number in [0, 1) for output token ``position`` of sequence ``index`` of a request with ``seed``.

    Philox is counter-based: the number for a position needs none of the numbers before it, so a preempted sequence goes
    on where it was."""
    key = np.array([seed, index], dtype=np.uint64)
    word = int(np.random.Philox(key=key, counter=position).random_raw())
    return float(np.ldexp(float(word >> (64 - _DOUBLE_BITS)), -_DOUBLE_BITS))

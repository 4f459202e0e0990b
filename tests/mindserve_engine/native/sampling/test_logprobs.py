"""Log-probabilities are numbers that JSON has, whatever the model rules out."""

from __future__ import annotations

import json

import torch

from mindserve_engine.native.sampling.host_copy import HostCopy
from mindserve_engine.native.sampling.logprobs import Logprobs
from mindserve_engine.types import LOGPROB_FLOOR
from tests.mindserve_engine.native.sampling.rows import row


def test_what_is_ruled_out_has_the_floor() -> None:
    logits = torch.full((2, 5), -torch.inf)
    logits[:, 3] = 1.0
    logits[0, 1] = -1e30
    wanting = row()
    wanting.num_logprobs = 5
    logprobs, copy = Logprobs(logits, [wanting, row(1)]), HostCopy()
    top, taken = logprobs.ask_largest(copy), logprobs.ask_taken(torch.tensor([1, 3]), copy)
    copy.fetch()
    told, nothing = logprobs.report(taken, top)
    assert nothing is None
    assert told is not None
    assert told.logprob == LOGPROB_FLOOR
    assert sorted(told.top_token_ids) == list(range(5))
    assert told.top_logprobs == [0.0] + [LOGPROB_FLOOR] * 4
    json.dumps(told.top_logprobs, allow_nan=False)

"""Readings R7 and R11: how many sequences, how they are found, what is told of their probabilities."""

from __future__ import annotations

import pytest

from mindserve.api.decode import decode_request
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.api.sequences import SequenceWishes, sequence_wishes

VLLM = VllmDialect()


def wishes(fields: str) -> SequenceWishes:
    body = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]' + (f", {fields}}}" if fields else "}")
    return sequence_wishes(decode_request(body.encode(), VLLM.requests, max_json_depth=20))


@pytest.mark.parametrize(
    ("fields", "num_returned", "beam_width", "ranked"),
    [
        ("", 1, 0, False),
        ('"n": null, "best_of": null, "use_beam_search": null', 1, 0, False),
        ('"n": 3', 3, 0, True),
        ('"best_of": 3', 3, 0, True),
        ('"n": 2, "best_of": 3', 3, 0, True),
        ('"n": 1, "best_of": 1', 1, 0, False),
        ('"n": 3, "stream": true', 3, 0, False),
        ('"n": 2, "best_of": 2, "stream": true', 2, 0, False),
        ('"use_beam_search": false, "n": 2', 2, 0, True),
        ('"use_beam_search": true', 1, 1, False),
        ('"use_beam_search": true, "n": 3', 3, 3, False),
        ('"use_beam_search": true, "best_of": 4', 1, 4, False),
        ('"use_beam_search": true, "n": 3, "best_of": 2', 3, 3, False),
        ('"use_beam_search": true, "n": 2, "best_of": 5, "stream": true', 2, 5, False),
    ],
)
def test_sequences(fields: str, num_returned: int, beam_width: int, ranked: bool) -> None:
    found = wishes(fields)
    assert (found.num_returned, found.beam_width, found.ranked) == (num_returned, beam_width, ranked)


@pytest.mark.parametrize(
    ("fields", "num_logprobs"),
    [
        ("", None),
        ('"logprobs": null, "top_logprobs": null', None),
        ('"logprobs": false', None),
        ('"logprobs": false, "top_logprobs": 0', None),
        ('"logprobs": true', 0),
        ('"logprobs": true, "top_logprobs": 0', 0),
        ('"logprobs": true, "top_logprobs": 20', 20),
        ('"top_logprobs": 5', 5),
        ('"top_logprobs": 0', 0),
    ],
)
def test_logprobs(fields: str, num_logprobs: int | None) -> None:
    assert wishes(fields).num_logprobs == num_logprobs

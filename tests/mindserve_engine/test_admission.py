"""Every limit of a request at its edge: inside is taken, just outside is refused by name."""

import math

import pytest

from mindserve_engine.admission import check_request, check_sampling
from mindserve_engine.interface import PromptTooLong, RequestInvalid
from mindserve_engine.types import Capability, EngineInfo, GenerationRequest, SamplingParams


def info(*capabilities: Capability) -> EngineInfo:
    return EngineInfo(
        model_type="any",
        vocab_size=10,
        max_context=8,
        max_prompt_tokens=4,
        capabilities=frozenset(capabilities),
    )


def request(**fields: object) -> GenerationRequest:
    return GenerationRequest(**{"request_id": "r", "prompt_token_ids": [0, 9], "max_tokens": 1, **fields})


@pytest.mark.parametrize(
    ("field", "inside", "outside"),
    [
        ("temperature", [0.0, 3.5, 1e30], [-0.001, math.inf, math.nan]),
        ("top_k", [0, 1, 2**31 - 1], [-1]),
        ("top_p", [1e-9, 1.0], [0.0, 1.001, math.nan]),
        ("seed", [0, 2**64 - 1], [-1, 2**64]),
        ("repetition_penalty", [0.001, 2.0, 50.0], [0.0, -1.0, math.inf, math.nan]),
        ("presence_penalty", [-2.0, 2.0, 50.0], [-math.inf, math.inf, math.nan]),
        ("frequency_penalty", [-2.0, 2.0, 50.0], [-math.inf, math.inf, math.nan]),
    ],
)
def test_sampling_ranges(field: str, inside: list[float], outside: list[float]) -> None:
    for value in inside:
        check_sampling(SamplingParams(**{field: value}))
    for value in outside:
        with pytest.raises(RequestInvalid) as caught:
            check_sampling(SamplingParams(**{field: value}))
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_token_ids", []),
        ("prompt_token_ids", [1, 10]),
        ("prompt_token_ids", [-1]),
        ("max_tokens", 0),
        ("num_sequences", 0),
        ("num_sequences", 2),
        ("grammar", 'start: "a"'),
        ("seed", -1),
    ],
)
def test_bad_fields_are_named(field: str, value: object) -> None:
    fields = {"sampling": SamplingParams(seed=value)} if field == "seed" else {field: value}
    with pytest.raises(RequestInvalid) as caught:
        check_request(request(**fields), info())
    assert caught.value.field == field


def test_prompt_length_limit() -> None:
    check_request(request(prompt_token_ids=[1] * 4, max_tokens=10**9), info())
    with pytest.raises(PromptTooLong) as caught:
        check_request(request(prompt_token_ids=[1] * 5), info())
    assert (caught.value.num_tokens, caught.value.limit) == (5, 4)


def test_the_token_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(RequestInvalid, match="token id 10 is outside the vocabulary of 10"):
        check_request(request(prompt_token_ids=[1, 10, 2]), info())


def test_a_bias() -> None:
    engine = info(Capability.LOGIT_BIAS)
    check_request(request(sampling=SamplingParams(logit_bias=((0, -100.0), (9, 3.5)))), engine)
    for bias, reason in (
        (((10, 1.0),), "token 10, outside the vocabulary of 10"),
        (((-1, 1.0),), "token -1, outside"),
        (((1, float("nan")),), "must be finite"),
    ):
        with pytest.raises(RequestInvalid, match=reason) as caught:
            check_request(request(sampling=SamplingParams(logit_bias=bias)), engine)
        assert caught.value.field == "logit_bias"
    with pytest.raises(RequestInvalid, match="lacks logit bias"):
        check_request(request(sampling=SamplingParams(logit_bias=((0, 1.0),))), info())


def test_capable_engine_takes_several_sequences() -> None:
    check_request(request(num_sequences=3), info(Capability.PARALLEL_SAMPLING))


def test_a_beam_search_cannot_follow_a_grammar() -> None:
    """Where the grammar leaves fewer ways than there are beams, hypotheses would be missing."""
    engine = info(Capability.GRAMMAR, Capability.BEAM_SEARCH)
    check_request(request(grammar='start: "a"'), engine)
    with pytest.raises(RequestInvalid, match="beam search") as caught:
        check_request(request(grammar='start: "a"', beam_width=2), engine)
    assert caught.value.field == "grammar"

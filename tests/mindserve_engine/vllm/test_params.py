"""What vLLM is asked for, for each sequence of a request."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed here")

import torch

from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import SEED_MAX, EngineInfo, GenerationRequest, SamplingParams
from mindserve_engine.vllm.params import SEED_END, check_params, sequence_params, stream_seed
from mindserve_engine.vllm.temperature import TemperatureOutside, _factor

INFO = EngineInfo(model_type="m", vocab_size=100, max_context=50, max_prompt_tokens=49, eos_token_ids=(3, 4))


def ask(sampling: SamplingParams | None = None, **fields: Any) -> GenerationRequest:
    settings = {"request_id": "r", "prompt_token_ids": [1, 2], "max_tokens": 9, **fields}
    return GenerationRequest(sampling=sampling or SamplingParams(), **settings)


def test_seeds_stay_apart_and_in_range() -> None:
    seeds = [0, 1, 2, SEED_END - 1, SEED_END, SEED_END + 1, SEED_MAX - 1, SEED_MAX]
    streams = {(seed, index): stream_seed(seed, index) for seed in seeds for index in range(128)}
    assert len(set(streams.values())) == len(streams)
    assert all(0 <= stream < SEED_END for stream in streams.values())
    assert [streams[seed, 0] for seed in seeds[:4]] == seeds[:4]
    assert stream_seed(SEED_MAX, 5) == streams[SEED_MAX, 5]


def test_ends_are_stop_tokens() -> None:
    params = sequence_params(ask(stop_token_ids=(7, 100, -1, 2**31 - 1)), 0, INFO)
    assert sorted(params.stop_token_ids) == [3, 4, 7]
    assert params.ignore_eos
    ignoring = sequence_params(ask(stop_token_ids=(7,), ignore_eos=True), 0, INFO)
    assert ignoring.stop_token_ids == [7]


def test_the_room_of_the_context() -> None:
    assert sequence_params(ask(max_tokens=2**31 - 1), 0, INFO).max_tokens == 48


@pytest.mark.parametrize(("wanted", "given"), [(0.0, 0.0), (0.001, 0.01), (0.01, 0.01), (2.0, 2.0), (3.0, 2.0)])
def test_temperatures(wanted: float, given: float) -> None:
    params = sequence_params(ask(SamplingParams(temperature=wanted)), 0, INFO)
    assert params.temperature == given
    factor = _factor(params)
    assert (1.0 if factor is None else factor) * max(wanted, 1e-30) == pytest.approx(max(given, 1e-30))


def test_logits_are_divided_by_the_rest_of_the_temperature() -> None:
    processor = TemperatureOutside(None, torch.device("cpu"), is_pin_memory=False)
    processor._factors = {1: 0.5, 2: 1e30}
    before = torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, -torch.inf]])
    after = processor.apply(before.clone())
    assert after[0].tolist() == [1.0, 2.0]
    assert after[1].tolist() == [-1.0, 0.0]
    assert after[2].tolist() == [0.0, -torch.inf]


def test_what_vllm_does_not_take_is_refused() -> None:
    hot = ask(SamplingParams(temperature=2.5))
    check_params(hot, has_all_temperatures=True)
    with pytest.raises(RequestInvalid, match="temperature") as refused:
        check_params(hot, has_all_temperatures=False)
    assert refused.value.field == "temperature"
    with pytest.raises(RequestInvalid, match="presence_penalty"):
        check_params(ask(SamplingParams(presence_penalty=-2.1)), has_all_temperatures=True)

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from mindserve.api import capabilities
from mindserve.api.capabilities import CARRIED, check_capabilities, check_model
from mindserve.api.decode import decode_request
from mindserve.api.dialect.openai import OpenAIDialect
from mindserve.api.lower import (
    TemplateInput,
    lower_request,
    stop_strings,
    template_input,
)
from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.config.settings import ServeSettings
from mindserve.errors import RefusalKind, RequestRefused
from mindserve_engine.types import SEED_MAX, Capability, EngineInfo, GenerationRequest, MediaModel, SamplingParams
from tests.serving import chat_body

OPENAI = OpenAIDialect()
"""It reads all that the other one reads."""

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": [1.5]}}}

STRICT_TOOL = {"type": "function", "function": {"name": "g", "strict": True}}
NAMED = {"type": "function", "function": {"name": "f"}}


def decoded(**fields: Any) -> Any:
    return decode_request(json.dumps(chat_body(**fields)).encode(), OPENAI.requests, max_json_depth=20)


def lowered(
    info: EngineInfo, *, num_prompt: int = 3, settings: dict[str, Any] | None = None, **fields: Any
) -> GenerationRequest:
    return lower_request(
        decoded(**fields),
        settings=ServeSettings(model_name="m", **(settings or {})),
        info=info,
        prompt_token_ids=[7] * num_prompt,
        request_id="r",
        random_seed=lambda: 42,
    )


def test_defaults(info: EngineInfo) -> None:
    request = lowered(info, settings={"max_iter_times": 50})
    assert request == GenerationRequest(
        request_id="r",
        prompt_token_ids=[7, 7, 7],
        max_tokens=50,
        sampling=SamplingParams(temperature=1.0, top_k=1000, top_p=1.0, seed=42),
    )


def test_null_is_the_default(info: EngineInfo) -> None:
    nulls = dict.fromkeys(
        ("temperature", "top_p", "top_k", "seed", "max_tokens", "n", "stop_token_ids", "ignore_eos",
         "presence_penalty", "frequency_penalty", "repetition_penalty", "max_completion_tokens")
    )  # fmt: skip
    assert lowered(info, **nulls) == lowered(info)


def test_values(info: EngineInfo) -> None:
    request = lowered(
        info, temperature=0, top_p=0.5, top_k=7, seed=SEED_MAX, presence_penalty=-2, frequency_penalty=2,
        repetition_penalty=1.5, ignore_eos=True, max_tokens=9, stop_token_ids=[5],
    )  # fmt: skip
    assert request.sampling == SamplingParams(
        temperature=0.0, top_k=7, top_p=0.5, seed=SEED_MAX, repetition_penalty=1.5, presence_penalty=-2.0,
        frequency_penalty=2.0,
    )  # fmt: skip
    assert (request.ignore_eos, request.max_tokens, request.stop_token_ids) == (True, 9, (5,))


@pytest.mark.parametrize(
    ("top_k", "of_the_model", "expected"),
    [(None, None, 1000), (None, 20, 20), (None, 0, 0), (-1, 20, 0), (5, 20, 5), (2**31 - 1, None, 2**31 - 1)],
)
def test_top_k(info: EngineInfo, top_k: int | None, of_the_model: int | None, expected: int) -> None:
    info = msgspec.structs.replace(info, default_top_k=of_the_model)
    assert lowered(info, top_k=top_k).sampling.top_k == expected


@pytest.mark.parametrize(
    ("fields", "max_iter_times", "num_prompt", "expected"),
    [
        ({}, 50, 10, 50),
        ({}, 512, 10, 90),
        ({"max_tokens": 20}, 50, 10, 20),
        ({"max_tokens": 60}, 50, 10, 50),
        ({"max_tokens": 2**31 - 1}, 10**6, 99, 1),
        ({"max_completion_tokens": 5}, 50, 10, 5),
        ({"max_completion_tokens": 5, "max_tokens": 30}, 50, 10, 5),
        ({"max_completion_tokens": 30, "max_tokens": 5}, 50, 10, 30),
        ({"max_completion_tokens": None, "max_tokens": 5}, 50, 10, 5),
    ],
)
def test_max_tokens(
    info: EngineInfo, fields: dict[str, Any], max_iter_times: int, num_prompt: int, expected: int
) -> None:
    assert (
        lowered(info, num_prompt=num_prompt, settings={"max_iter_times": max_iter_times}, **fields).max_tokens
        == expected
    )


def test_stop_token_ids_keeps_what_the_vocabulary_has(info: EngineInfo) -> None:
    elements = [2, 258, 259, 99999999, -5, 2**31, "2", 2.0, True, [3], {"a": 1}, 2, 13]
    assert lowered(info, stop_token_ids=elements).stop_token_ids == (2, 258, 13)


@pytest.mark.parametrize(("seed", "is_warned"), [(SEED_MAX, True), (SEED_MAX - 999, True), (SEED_MAX - 1000, False)])
def test_seeds_close_to_the_maximum_are_logged(
    info: EngineInfo, caplog: pytest.LogCaptureFixture, seed: int, *, is_warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        assert lowered(info, seed=seed).sampling.seed == seed
    assert bool(caplog.records) is is_warned


@pytest.mark.parametrize(
    ("settings", "num_prompt", "name", "limit"),
    [
        ({}, 100, "max_position_embeddings - 1", 99),
        ({"max_input_token_len": 50}, 51, "maxInputTokenLen", 50),
        ({"max_seq_len": 40}, 40, "maxSeqLen - 1", 39),
        ({"max_input_token_len": 50, "max_seq_len": 40}, 60, "maxSeqLen - 1", 39),
    ],
)
def test_prompts_too_long(info: EngineInfo, settings: dict[str, Any], num_prompt: int, name: str, limit: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        lowered(info, num_prompt=num_prompt, settings=settings)
    assert refused.value.kind is RefusalKind.CONTEXT_LENGTH
    for words in ("maximum context length is 100 tokens", name, str(limit), f"{num_prompt} tokens"):
        assert words in refused.value.message
    assert lowered(info, num_prompt=limit, settings=settings).max_tokens >= 1


def test_a_context_that_the_memory_cuts_is_not_blamed_on_the_model(info: EngineInfo) -> None:
    cut = msgspec.structs.replace(info, is_context_cut_by_memory=True)
    with pytest.raises(RequestRefused, match=r"99 of them for the prompt \(the KV memory \(npuMemSize\) - 1\)"):
        lowered(cut, num_prompt=100)


def test_the_limit_of_the_document_holds_for_any_model(info: EngineInfo) -> None:
    info = msgspec.structs.replace(info, max_context=2**22, max_prompt_tokens=2**22 - 1)
    assert lowered(info, num_prompt=2**20).max_tokens == 512
    with pytest.raises(RequestRefused, match="1048576"):
        lowered(info, num_prompt=2**20 + 1)


def test_stop_strings() -> None:
    assert list(stop_strings(decoded())) == []
    assert list(stop_strings(decoded(stop="a"))) == ["a"]
    assert list(stop_strings(decoded(stop=["a", "b"]))) == ["a", "b"]
    assert list(stop_strings(decoded(stop=[]))) == []


def test_template_input() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": None}]
    given = template_input(decoded(messages=messages, chat_template_kwargs={"enable_thinking": False, "x": None}))
    assert given == TemplateInput([messages[0], {"role": "assistant"}], None, {"enable_thinking": False})


@pytest.mark.parametrize(
    ("fields", "tools"),
    [
        ({"tools": [TOOL]}, [TOOL]),
        ({"tools": [TOOL], "tool_choice": "auto"}, [TOOL]),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"tools": []}, None),
    ],
)
def test_tools_of_the_template(fields: dict[str, Any], tools: Any) -> None:
    assert template_input(decoded(**fields)).tools == tools


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"tools": [TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a.png"}]}]},
            "messages[0].content[0].type",
        ),
        ({"model": "adapter"}, "model"),
    ],
)
def test_features_that_are_not_there_are_refused(info: EngineInfo, fields: dict[str, Any], field: str) -> None:
    settings = ServeSettings(model_name="m", lora_names=("adapter",))
    request = decoded(**fields)
    check_model(request, settings)
    with pytest.raises(RequestRefused) as refused:
        check_capabilities(request, settings, info, family=None)
    assert refused.value.field == field
    assert field in refused.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 1, "best_of": 1, "use_beam_search": False, "logprobs": False, "top_logprobs": 0},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [], "response_format": {"type": "text"}},
    ],
)
def test_what_every_engine_does(info: EngineInfo, fields: dict[str, Any]) -> None:
    check_capabilities(decoded(**fields), ServeSettings(model_name="m"), info, family=None)


@pytest.mark.parametrize(("fields", "needs"), [
    ({"n": 2}, Capability.PARALLEL_SAMPLING),
    ({"use_beam_search": True}, Capability.BEAM_SEARCH),
    ({"logprobs": True}, Capability.LOGPROBS),
    ({"top_logprobs": 1}, Capability.LOGPROBS),
    ({"response_format": {"type": "json_object"}}, Capability.GRAMMAR),
    ({"tools": [TOOL], "tool_choice": "required"}, Capability.GRAMMAR),
    ({"tools": [TOOL], "tool_choice": NAMED}, Capability.GRAMMAR),
    ({"tools": [TOOL, STRICT_TOOL]}, Capability.GRAMMAR),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a.png"}]}]}, Capability.MEDIA),
    ({"model": "adapter"}, Capability.LORA),
    ({"logit_bias": {"5": 1}}, Capability.LOGIT_BIAS),
])  # fmt: skip
def test_the_engine_is_asked_about_what_the_server_carries(
    info: EngineInfo, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], needs: Capability
) -> None:
    settings = ServeSettings(model_name="m", lora_names=("adapter",))
    able = msgspec.structs.replace(info, capabilities=frozenset(Capability), media=MediaModel(image_token_id=5))
    unable = msgspec.structs.replace(able, capabilities=frozenset(Capability) - {needs})
    if needs not in CARRIED:  # an able engine is no help to a server that cannot tell it what is wanted
        with pytest.raises(RequestRefused):
            check_capabilities(decoded(**fields), settings, able, family=HERMES)
    monkeypatch.setattr(capabilities, "CARRIED", frozenset({needs}))
    check_capabilities(decoded(**fields), settings, able, family=HERMES)
    with pytest.raises(RequestRefused, match="not available"):
        check_capabilities(decoded(**fields), settings, unable, family=HERMES)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL, STRICT_TOOL]}, "tools[1].function.strict"),
    ],
)
def test_calls_are_not_forced_without_constrained_decoding(
    info: EngineInfo, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_capabilities(decoded(**fields), ServeSettings(model_name="m"), info, family=HERMES)
    assert refused.value.field == field


def test_tools_need_a_model_whose_way_of_calling_is_known(info: EngineInfo) -> None:
    check_capabilities(decoded(tools=[TOOL]), ServeSettings(model_name="m"), info, family=HERMES)


def test_a_bias_of_tokens(info: EngineInfo) -> None:
    able = msgspec.structs.replace(info, capabilities=frozenset({Capability.LOGIT_BIAS}))
    wish = decoded(logit_bias={"0": -100, "258": 2.5})
    check_capabilities(wish, ServeSettings(model_name="m"), able, family=None)
    assert lowered(able, logit_bias={"0": -100, "258": 2.5}).sampling.logit_bias == ((0, -100.0), (258, 2.5))
    assert lowered(able, logit_bias=None).sampling.logit_bias == ()
    with pytest.raises(RequestRefused, match="its ids end at 258") as refused:
        check_capabilities(decoded(logit_bias={"1": 1, "259": 1}), ServeSettings(model_name="m"), able, family=None)
    assert refused.value.field == "logit_bias.259"


def test_an_engine_that_makes_several_sequences(info: EngineInfo) -> None:
    able = msgspec.structs.replace(info, capabilities=frozenset({Capability.PARALLEL_SAMPLING}))
    check_capabilities(decoded(n=3), ServeSettings(model_name="m"), able, family=None)
    assert lowered(able, n=3).num_sequences == 3


def test_unknown_models_are_told_the_served_ones() -> None:
    with pytest.raises(RequestRefused) as refused:
        check_model(decoded(model="x"), ServeSettings(model_name="base", lora_names=("a", "b")))
    assert refused.value.kind is RefusalKind.MODEL_NOT_FOUND
    assert refused.value.message == 'model must be one of the served models ("base", "a", "b"), got "x"'

"""litellm: ``completion`` with the provider ``openai``, which is the one for servers of OpenAI's API."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import asks the network for a list of prices

import attempts
import litellm
import openai
import pydantic
from attempts import ANSWER, COUNT, MODEL, TOOL, USER, WEATHER, attempt, base_url, equal

litellm.suppress_debug_info = True


class Weather(pydantic.BaseModel):
    """What is asked for."""

    city: str
    degrees: int


def complete(turns: Any, **options: Any) -> Any:
    return litellm.completion(
        model=f"openai/{MODEL}", api_base=base_url(), api_key="any", messages=turns, num_retries=0, **options
    )


def streamed(text: str, **options: Any) -> Any:
    chunks = list(complete(USER(text), stream=True, **options))
    return litellm.stream_chunk_builder(chunks, messages=USER(text))


def whole() -> None:
    answer = complete(USER(COUNT))
    equal(answer.choices[0].message.content, "1 2 3 4 5")
    equal(answer.usage.completion_tokens, 6)


def stream() -> None:
    equal(streamed(COUNT).choices[0].message.content, "1 2 3 4 5")


def stream_usage() -> None:
    chunks = list(complete(USER(COUNT), stream=True, stream_options={"include_usage": True}))
    equal([chunk.usage.completion_tokens for chunk in chunks if getattr(chunk, "usage", None)], [6])


def tool_loop() -> None:
    message = complete(USER(WEATHER), tools=[TOOL]).choices[0].message
    (call,) = message.tool_calls
    equal(json.loads(call.function.arguments), {"city": "Oslo"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    equal(complete([*USER(WEATHER), message, result], tools=[TOOL]).choices[0].message.content, ANSWER)


def tool_stream() -> None:
    (call,) = streamed(WEATHER, tools=[TOOL]).choices[0].message.tool_calls
    equal((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Oslo"}))


def structured() -> None:
    content = complete(USER("as json"), response_format=Weather).choices[0].message.content
    equal(Weather.model_validate_json(content), Weather(city="Oslo", degrees=21))


def structured_stream() -> None:
    content = streamed("as json", response_format=Weather).choices[0].message.content
    equal(Weather.model_validate_json(content), Weather(city="Oslo", degrees=21))


def refused() -> Exception:
    try:
        complete(USER(COUNT), temperature=-1)
    except Exception as error:
        return error
    raise AssertionError("it was not refused")


def refusal() -> None:
    error = refused()
    if "temperature" not in f"{error} {getattr(error, 'body', '')}":
        raise error


def refusal_message() -> None:
    error = refused()
    if "temperature" not in str(error):
        raise error


def refusal_param() -> None:
    equal(getattr(refused(), "param", None), "temperature")


def helper_role() -> None:
    equal(streamed(COUNT).choices[0].message.role, "assistant")


def own_figures() -> None:
    equal("prefill_time" in complete(USER(COUNT)).model_dump(), True)


def broken_stream() -> None:
    try:
        streamed("fail")
    except openai.APIError:  # what litellm's own exceptions are
        return
    raise AssertionError("a stream that broke off looked whole")


def own_parameters() -> None:
    answer = complete(USER(COUNT), extra_body={"top_k": 5, "repetition_penalty": 1.1})
    equal(answer.choices[0].message.content, "1 2 3 4 5")
    attempts.refused(lambda: complete(USER(COUNT), extra_body={"top_k": 0}))


attempt("whole answer", whole)
attempt("stream", stream)
attempt("stream helper", stream)
attempt("stream helper: role", helper_role)
attempt("usage of a stream", stream_usage)
attempt("tool loop", tool_loop)
attempt("tool call, streamed", tool_stream)
attempt("structured answer", structured)
attempt("structured answer, streamed", structured_stream)
attempt("refusal names the field", refusal)
attempt("refusal: message", refusal_message)
attempt("refusal: param", refusal_param)
attempt("stream that breaks off", broken_stream)
attempt("MindIE's parameters", own_parameters)
attempt("MindIE's times", own_figures)

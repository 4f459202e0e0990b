"""openai-python: ``create``, the ``.stream()`` helper and the ``parse`` helper."""

from __future__ import annotations

import json
from typing import Any

import attempts
import openai
import pydantic
from attempts import ANSWER, COUNT, MODEL, TOOL, USER, WEATHER, attempt, base_url, equal

client = openai.OpenAI(base_url=base_url(), api_key="any", max_retries=0)
completions = client.chat.completions


class Weather(pydantic.BaseModel):
    """What is asked for."""

    city: str
    degrees: int


def whole() -> None:
    answer = completions.create(model=MODEL, messages=USER(COUNT))
    equal(answer.choices[0].message.content, "1 2 3 4 5")
    assert answer.usage is not None
    equal(answer.usage.completion_tokens, 6)


def stream() -> None:
    chunks = list(completions.create(model=MODEL, messages=USER(COUNT), stream=True))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), "1 2 3 4 5")


def stream_usage() -> None:
    options: Any = {"include_usage": True}
    chunks = list(completions.create(model=MODEL, messages=USER(COUNT), stream=True, stream_options=options))
    equal([chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None], [6])


def stream_helper() -> None:
    with completions.stream(model=MODEL, messages=USER(COUNT)) as events:
        equal(events.get_final_completion().choices[0].message.content, "1 2 3 4 5")


def stream_helper_role() -> None:
    with completions.stream(model=MODEL, messages=USER(COUNT)) as events:
        equal(events.get_final_completion().choices[0].message.role, "assistant")


def tool_loop() -> None:
    answer = completions.create(model=MODEL, messages=USER(WEATHER), tools=[TOOL])
    message = answer.choices[0].message
    (call,) = message.tool_calls or []
    equal(json.loads(call.function.arguments), {"city": "Oslo"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    turns = [*USER(WEATHER), message.model_dump(exclude_none=True), result]
    equal(completions.create(model=MODEL, messages=turns, tools=[TOOL]).choices[0].message.content, ANSWER)


def tool_stream() -> None:
    with completions.stream(model=MODEL, messages=USER(WEATHER), tools=[TOOL]) as events:
        choice = events.get_final_completion().choices[0]
    (call,) = choice.message.tool_calls or []
    equal((choice.finish_reason, call.function.name, json.loads(call.function.arguments)["city"]),
          ("tool_calls", "get_weather", "Oslo"))  # fmt: skip


def structured() -> None:
    answer = completions.parse(model=MODEL, messages=USER("as json"), response_format=Weather)
    equal(answer.choices[0].message.parsed, Weather(city="Oslo", degrees=21))


def structured_stream() -> None:
    with completions.stream(model=MODEL, messages=USER("as json"), response_format=Weather) as events:
        equal(events.get_final_completion().choices[0].message.parsed, Weather(city="Oslo", degrees=21))


def refused() -> openai.APIStatusError:
    try:
        completions.create(model=MODEL, messages=USER(COUNT), temperature=-1)
    except openai.APIStatusError as error:
        return error
    raise AssertionError("it was not refused")


def error_names_the_field() -> None:
    error = refused()
    if "temperature" not in f"{error} {error.body}":
        raise error


def error_message() -> None:
    error = refused()
    if "temperature" not in str(error):
        raise error


def error_param() -> None:
    equal(refused().param, "temperature")


def broken_stream() -> None:
    try:
        list(completions.create(model=MODEL, messages=USER("fail"), stream=True))
    except openai.APIError:
        return
    raise AssertionError("a stream that broke off looked whole")


def own_parameters() -> None:
    extra = {"top_k": 5, "repetition_penalty": 1.1}
    answer = completions.create(model=MODEL, messages=USER(COUNT), extra_body=extra)
    equal(answer.choices[0].message.content, "1 2 3 4 5")
    attempts.refused(lambda: completions.create(model=MODEL, messages=USER(COUNT), extra_body={"top_k": 0}))


def own_figures() -> None:
    answer = completions.create(model=MODEL, messages=USER(COUNT))
    equal("prefill_time" in (answer.model_extra or {}), True)


attempt("whole answer", whole)
attempt("stream", stream)
attempt("usage of a stream", stream_usage)
attempt("stream helper", stream_helper)
attempt("stream helper: role", stream_helper_role)
attempt("tool loop", tool_loop)
attempt("tool call, streamed", tool_stream)
attempt("structured answer", structured)
attempt("structured answer, streamed", structured_stream)
attempt("refusal names the field", error_names_the_field)
attempt("refusal: message", error_message)
attempt("refusal: param", error_param)
attempt("stream that breaks off", broken_stream)
attempt("MindIE's parameters", own_parameters)
attempt("MindIE's times", own_figures)

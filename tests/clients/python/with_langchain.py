"""langchain-openai: ``ChatOpenAI``."""

from __future__ import annotations

from typing import Any

import attempts
import openai
import pydantic
from attempts import ANSWER, COUNT, MODEL, TOOL, WEATHER, attempt, base_url, equal
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


class Weather(pydantic.BaseModel):
    """What is asked for."""

    city: str
    degrees: int


def model(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=base_url(), api_key="any", max_retries=0, **options)


def joined(runnable: Any, text: str) -> Any:
    pieces = list(runnable.stream(text))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return whole


def whole() -> None:
    answer = model().invoke(COUNT)
    equal(answer.content, "1 2 3 4 5")
    assert answer.usage_metadata is not None
    equal(answer.usage_metadata["output_tokens"], 6)


def stream() -> None:
    equal(joined(model(), COUNT).content, "1 2 3 4 5")


def stream_usage() -> None:
    equal(joined(model(stream_usage=True), COUNT).usage_metadata["output_tokens"], 6)


def tool_loop() -> None:
    bound = model().bind_tools([TOOL])
    asked = HumanMessage(WEATHER)
    answer = bound.invoke([asked])
    (call,) = answer.tool_calls
    equal((call["name"], call["args"]), ("get_weather", {"city": "Oslo"}))
    result = ToolMessage("21 degrees", tool_call_id=call["id"])
    equal(bound.invoke([asked, answer, result]).content, ANSWER)


def tool_stream() -> None:
    (call,) = joined(model().bind_tools([TOOL]), WEATHER).tool_calls
    equal((call["name"], call["args"]), ("get_weather", {"city": "Oslo"}))


def structured() -> None:
    bound = model().with_structured_output(Weather, method="json_schema")
    equal(bound.invoke("as json"), Weather(city="Oslo", degrees=21))


def structured_stream() -> None:
    bound = model().with_structured_output(Weather, method="json_schema")
    equal(list(bound.stream("as json"))[-1], Weather(city="Oslo", degrees=21))


def refusal() -> None:
    try:
        model(temperature=-1).invoke(COUNT)
    except openai.APIStatusError as error:
        if "temperature" not in f"{error} {error.body}":
            raise
        return
    raise AssertionError("it was not refused")


def refusal_message() -> None:
    try:
        model(temperature=-1).invoke(COUNT)
    except openai.APIStatusError as error:
        if "temperature" not in str(error):
            raise
        return
    raise AssertionError("it was not refused")


def refusal_param() -> None:
    try:
        model(temperature=-1).invoke(COUNT)
    except openai.APIStatusError as error:
        equal(error.param, "temperature")
        return
    raise AssertionError("it was not refused")


def own_figures() -> None:
    equal("prefill_time" in model().invoke(COUNT).response_metadata, True)


def broken_stream() -> None:
    try:
        joined(model(), "fail")
    except openai.APIError:
        return
    raise AssertionError("a stream that broke off looked whole")


def own_parameters() -> None:
    equal(model(extra_body={"top_k": 5, "repetition_penalty": 1.1}).invoke(COUNT).content, "1 2 3 4 5")
    attempts.refused(lambda: model(extra_body={"top_k": 0}).invoke(COUNT))


attempt("whole answer", whole)
attempt("stream", stream)
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

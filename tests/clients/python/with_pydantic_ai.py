"""pydantic-ai: an ``Agent`` over ``OpenAIChatModel``."""

from __future__ import annotations

import asyncio
from typing import Any

import attempts
import openai
import pydantic
from attempts import ANSWER, COUNT, MODEL, WEATHER, attempt, base_url, equal
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import AgentRunError, ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(pydantic.BaseModel):
    """What is asked for."""

    city: str
    degrees: int


def agent(**options: Any) -> Agent[None, Any]:
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=base_url(), api_key="any"))
    return Agent(model, retries=0, **options)


def with_tool() -> tuple[Agent[None, Any], list[str]]:
    made, cities = agent(), []

    @made.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return "21 degrees"

    return made, cities


async def streamed(runner: Agent[None, Any], text: str) -> tuple[Any, Any]:
    async with runner.run_stream(text) as result:
        return await result.get_output(), result.usage


def whole() -> None:
    result = agent().run_sync(COUNT)
    equal(result.output, "1 2 3 4 5")
    equal(result.usage.output_tokens, 6)


def stream() -> None:
    equal(asyncio.run(streamed(agent(), COUNT))[0], "1 2 3 4 5")


def stream_usage() -> None:
    equal(asyncio.run(streamed(agent(), COUNT))[1].output_tokens, 6)


def tool_loop() -> None:
    made, cities = with_tool()
    equal((made.run_sync(WEATHER).output, cities), (ANSWER, ["Oslo"]))


def tool_stream() -> None:
    made, cities = with_tool()
    equal((asyncio.run(streamed(made, WEATHER))[0], cities), (ANSWER, ["Oslo"]))


def structured() -> None:
    equal(agent(output_type=NativeOutput(Weather)).run_sync("as json").output, Weather(city="Oslo", degrees=21))


def structured_stream() -> None:
    made = agent(output_type=NativeOutput(Weather))
    equal(asyncio.run(streamed(made, "as json"))[0], Weather(city="Oslo", degrees=21))


def refusal() -> None:
    try:
        agent(model_settings={"temperature": -1}).run_sync(COUNT)
    except ModelHTTPError as error:
        if "temperature" not in f"{error} {error.body}":
            raise
        return
    raise AssertionError("it was not refused")


def refusal_message() -> None:
    try:
        agent(model_settings={"temperature": -1}).run_sync(COUNT)
    except ModelHTTPError as error:
        if "temperature" not in str(error):
            raise
        return
    raise AssertionError("it was not refused")


def refusal_param() -> None:
    try:
        agent(model_settings={"temperature": -1}).run_sync(COUNT)
    except ModelHTTPError as error:
        equal(error.body.get("param") if isinstance(error.body, dict) else None, "temperature")
        return
    raise AssertionError("it was not refused")


def own_figures() -> None:
    equal("prefill_time" in repr(agent().run_sync(COUNT).all_messages()), True)


def broken_stream() -> None:
    try:
        asyncio.run(streamed(agent(), "fail"))
    except (AgentRunError, openai.APIError):
        return
    raise AssertionError("a stream that broke off looked whole")


def own_parameters() -> None:
    settings: Any = {"extra_body": {"top_k": 5, "repetition_penalty": 1.1}}
    equal(agent(model_settings=settings).run_sync(COUNT).output, "1 2 3 4 5")
    wrong: Any = {"extra_body": {"top_k": 0}}
    attempts.refused(lambda: agent(model_settings=wrong).run_sync(COUNT))


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

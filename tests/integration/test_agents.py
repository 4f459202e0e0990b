"""An agent framework (pydantic-ai) drives whole tool loops: a scripted model in both dialects, and random weights whose
calls and answers are enforced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import openai
import pytest
import pytest_asyncio
import torch
from pydantic import BaseModel, Field
from pydantic_ai import Agent, AgentRunResult, AgentRunResultEvent, NativeOutput, Tool, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from mindserve.config.settings import Dialect, ServeSettings
from tests.qwen import told_model, write_tiny_qwen
from tests.serving import MODEL, Live, Model, running

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
Parts = list[Any]


@asynccontextmanager
async def model_of(live: Live) -> AsyncIterator[OpenAIChatModel]:
    profile = OpenAIModelProfile(supports_json_schema_output=True)
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0, timeout=120) as client:
        yield OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client), profile=profile)


async def run(agent: Agent[None, Any], question: str, *, stream: bool, **fields: Any) -> AgentRunResult[Any]:
    """The whole loop, to the end of the last answer."""
    if not stream:
        return await agent.run(question, **fields)
    async with agent.run_stream_events(question, **fields) as events:
        told = [event async for event in events]
    (result,) = [event.result for event in told if isinstance(event, AgentRunResultEvent)]
    return result


def parts_of(messages: list[ModelMessage], kind: type) -> Parts:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


def asked_cities(agent: Agent[None, Any]) -> list[str]:
    """Filled with the cities for which the agent's tool ``get_weather`` is called."""
    cities: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        cities.append(city)
        return "21 degrees"

    return cities


LOOPS = {
    "one call": ("How warm is Oslo?", ["Oslo"]),
    "text, then two calls": ("How warm are the two cities?", ["Oslo", "北京"]),
}


@MODES
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop(caller: Model, dialect: Dialect, name: str, *, stream: bool) -> None:
    question, wanted = LOOPS[name]
    async with running(caller, ServeSettings(model_name=MODEL, dialect=dialect)) as live, model_of(live) as model:
        agent = Agent(model)
        cities = asked_cities(agent)
        result = await run(agent, question, stream=stream)
    assert sorted(cities) == wanted  # the agent carries calls of one turn out side by side
    assert result.output == "It is 21 degrees."
    messages = result.all_messages()
    assert [type(message) for message in messages] == [ModelRequest, ModelResponse] * 2
    calls, returns = parts_of(messages, ToolCallPart), parts_of(messages, ToolReturnPart)
    assert [call.tool_call_id for call in calls] == [told.tool_call_id for told in returns]
    assert len({call.tool_call_id for call in calls}) == len(wanted)
    assert [message.finish_reason for message in messages[1::2]] == ["tool_call", "stop"]


@MODES
async def test_a_loop_with_thoughts(thinker: Model, *, stream: bool) -> None:
    """They come before the call, and go back with it."""
    async with running(thinker) as live, model_of(live) as model:
        agent = Agent(model)
        cities = asked_cities(agent)
        result = await run(agent, "ponder then call", stream=stream)
    assert cities == ["Oslo"]
    assert result.output.strip() == "As I thought."  # the script says so when it is given its thoughts back
    assert [part.content for part in parts_of(result.all_messages()[:2], ThinkingPart)] == ["I need it."]


class Report(BaseModel):
    """What the agent is to find out."""

    city: str = Field(max_length=8, pattern="^[A-Za-z]+$")
    degrees: int = Field(ge=-60, le=60)
    sky: Literal["clear", "cloudy"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def raving(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OpenAIChatModel]:
    """Tiny random weights behind Qwen2.5's tokenizer and chat template."""
    torch.manual_seed(0)
    tiny = told_model(write_tiny_qwen(tmp_path_factory.mktemp("qwen")))
    async with running(tiny) as live, model_of(live) as model:
        yield model


def wild(seed: int) -> ModelSettings:
    return ModelSettings(temperature=1.8, max_tokens=600, seed=seed)


@MODES
@pytest.mark.asyncio(loop_scope="module")
async def test_a_loop_that_is_enforced(raving: OpenAIChatModel, *, stream: bool) -> None:
    """The framework asks for a tool call ("required") until the one that ends the run is called."""
    looked_up: list[tuple[str, int]] = []

    def look_up(sky: Literal["clear", "cloudy"], hour: int) -> str:
        looked_up.append((sky, hour))
        return "21"

    agent = Agent(raving, output_type=Report, tools=[Tool(look_up, strict=True)], retries=0)
    for seed in range(4):
        result = await run(
            agent, "Oslo?", stream=stream, model_settings=wild(seed), usage_limits=UsageLimits(request_limit=30)
        )
        assert isinstance(result.output, Report)
        answers = [message for message in result.all_messages() if isinstance(message, ModelResponse)]
        assert all(parts_of([answer], ToolCallPart) for answer in answers)
    assert looked_up


@MODES
@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_of_the_form_asked_for(raving: OpenAIChatModel, *, stream: bool) -> None:
    agent = Agent(raving, output_type=NativeOutput(Report, strict=True), retries=0)
    reports = [(await run(agent, "Oslo?", stream=stream, model_settings=wild(seed))).output for seed in range(4)]
    assert all(isinstance(report, Report) for report in reports)

"""What type checkers make of the SDK: read by mypy with the sources, run by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from mindserve_client import (
    AsyncClient,
    AsyncStream,
    ChatMessageParam,
    Client,
    Stream,
    audio,
    image,
    input_audio,
    models,
    openai_models,
    text,
    video,
)

MESSAGES: list[ChatMessageParam] = [
    {"role": "system", "content": "Be brief."},
    models.ChatMessage(role="user", content=[text("What is this?"), image("https://host/cat.png")]),
    {"role": "user", "content": [image(Path("cat.png")), video(b"", format="mp4"), audio("UklGRg==", format="wav")]},
    {"role": "user", "content": [text("And this?"), input_audio(Path("cat.mp3"), format="mp3")]},
]


def whole_and_streamed(client: Client[models.ChatCompletion, models.ChatCompletionChunk], wish: bool) -> None:
    answer = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0.5, stop=["a"], seed=2**64 - 1)
    assert_type(answer, models.ChatCompletion)
    assert_type(answer.prefill_time, float)
    assert_type(answer.choices[0].message.content, str)
    assert_type(answer.usage.queue_wait_time, list[int])
    with client.chat.completions.create(model="m", messages=MESSAGES, stream=True) as stream:
        assert_type(stream, Stream[models.ChatCompletionChunk])
        for chunk in stream:
            assert_type(chunk.choices[0].delta.content, str | None)
            assert_type(chunk.usage, models.Usage | None)
    either = client.chat.completions.create(model="m", messages=MESSAGES, stream=wish)
    assert_type(either, models.ChatCompletion | Stream[models.ChatCompletionChunk])
    again = client.chat.completions.create(model="m", messages=[*MESSAGES, answer.choices[0].message], timeout=5)
    assert_type(again, models.ChatCompletion)
    assert_type(client.models.list().data[0].max_model_len, int | None)


def dialects() -> None:
    assert_type(Client("http://h"), Client[models.ChatCompletion, models.ChatCompletionChunk])
    client = Client("http://h", dialect="openai", api_key="k", timeout=3.0, headers={"a": "b"})
    assert_type(client, Client[openai_models.ChatCompletion, openai_models.ChatCompletionChunk])
    answer = client.chat.completions.create(model="m", messages=MESSAGES, logit_bias={"1": 2.5}, metadata={"a": "b"})
    assert_type(answer.choices[0].message.content, str | None)
    assert_type(answer.choices[0].message.tool_calls, list[models.ToolCall] | None)


async def asynchronous() -> None:
    async with AsyncClient("http://h") as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES)
        assert_type(answer, models.ChatCompletion)
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        assert_type(stream, AsyncStream[models.ChatCompletionChunk])
        async for chunk in stream:
            assert_type(chunk, models.ChatCompletionChunk)
    other = AsyncClient("http://h", dialect="openai")
    assert_type(other, AsyncClient[openai_models.ChatCompletion, openai_models.ChatCompletionChunk])


def refused() -> None:
    """Each line is an error; mypy complains of an unused ignore where it is not."""
    client = Client("http://h")
    client.chat.completions.create(model="m", messages=MESSAGES, tempreture=0.5)  # type: ignore[call-overload]
    client.chat.completions.create(model="m", messages=MESSAGES, top_k="5")  # type: ignore[call-overload]
    client.chat.completions.create(model="m")  # type: ignore[call-overload]
    client.chat.completions.create(model="m", messages=MESSAGES, tool_choice="maybe")  # type: ignore[call-overload]
    Client("http://h", dialect="other")  # type: ignore[call-overload]
    models.ChatMessage(content="a")  # type: ignore[call-arg]
    print(client.chat.completions.create(model="m", messages=MESSAGES).prefil_time)  # type: ignore[attr-defined]

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve.api._generated.models import ChatCompletionChunk
from mindserve.api.assemble import Answer, AnswerHead, whole_ms
from mindserve.chat.answer import SequenceAnswer
from mindserve.chat.output import SequenceText
from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve_engine.types import FinishReason, SequenceEvent, TokenTiming

HEAD = AnswerHead(id="endpoint_common_5", created=17, model="m", call_ids=iter(()))


def event(
    text: bytes, finish: FinishReason | None = None, *, index: int = 0, step_ms: float = 2.0, wait_us: int = 3
) -> SequenceEvent:
    """Every byte is a token."""
    timing = TokenTiming(wait_us, 1, step_ms)
    return SequenceEvent("r", index, list(text), [timing] * len(text), finish, 9, 4)


def answer_of(tokenizer: ChatTokenizer, *, num_sequences: int = 1, **options: Any) -> Answer:
    return Answer(HEAD, [SequenceAnswer(SequenceText(tokenizer, **options)) for _ in range(num_sequences)])


def chunk_of(answer: Answer, one: SequenceEvent, *, full_text: bool = False) -> ChatCompletionChunk | None:
    """The one chunk that plain text makes."""
    chunks = answer.chunks(one, full_text=full_text)
    assert len(chunks) <= 1
    return chunks[0] if chunks else None


def plain(body: msgspec.Struct | None) -> Any:
    return json.loads(msgspec.json.encode(body))


def test_key_order_of_a_body(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer)
    answer.feed(event(b"ab", FinishReason.LENGTH))
    body = plain(answer.completion())
    assert list(body) == ["id", "object", "created", "model", "choices", "usage", "prefill_time", "decode_time_arr"]
    assert list(body["choices"][0]) == ["index", "message", "logprobs", "finish_reason"]
    assert list(body["choices"][0]["message"]) == ["role", "content", "tool_calls"]
    assert list(body["usage"]) == [
        "prompt_tokens", "prompt_tokens_details", "completion_tokens", "total_tokens", "batch_size", "queue_wait_time",
    ]  # fmt: skip
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert body["usage"]["total_tokens"] == 11


def test_key_order_of_chunks(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer)
    first = plain(chunk_of(answer, event(b"a"), full_text=True))
    last = plain(chunk_of(answer, event(b"b", FinishReason.LENGTH), full_text=True))
    assert list(first) == ["id", "object", "created", "model", "choices"]
    assert list(last) == ["id", "object", "created", "model", "full_text", "usage", "choices"]
    assert list(last["choices"][0]) == ["index", "delta", "logprobs", "finish_reason"]
    assert last["choices"][0]["delta"] == {"role": "assistant", "content": "ab"}
    assert last["full_text"] == "ab"


@pytest.mark.parametrize(("milliseconds", "whole"), [(0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (2.5, 3), (28.4999, 28)])
def test_halves_are_rounded_up(milliseconds: float, whole: int) -> None:
    assert whole_ms(milliseconds) == whole


@pytest.mark.parametrize(
    ("finish", "reason"),
    [(FinishReason.LENGTH, "length"), (FinishReason.EOS, "stop"), (FinishReason.STOP_TOKEN, "stop")],
)
def test_finish_reasons(tokenizer: ChatTokenizer, finish: FinishReason, reason: str) -> None:
    answer = answer_of(tokenizer)
    answer.feed(event(b"ab", finish))
    assert answer.is_complete
    assert answer.completion().choices[0].finish_reason == reason


def test_text_held_back_makes_no_chunk_and_is_flushed_with_the_finish(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer, stops=["XYZ"])
    assert chunk_of(answer, event(b"X")) is None
    assert chunk_of(answer, event(b"Y")) is None
    last = chunk_of(answer, event(b"!", FinishReason.LENGTH))
    assert last is not None
    assert last.choices[0].delta.content == "XY!"


def test_a_stop_string_ends_the_answer_and_what_follows_is_not_counted(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer, stops=["DE"])
    chunk = chunk_of(answer, event(b"ABCDEFG"))
    assert chunk is not None
    assert chunk.choices[0].delta.content == "ABC"
    assert chunk.choices[0].finish_reason == "stop"
    assert plain(chunk)["usage"]["completion_tokens"] == 5
    assert len(plain(chunk)["usage"]["batch_size"]) == 5
    assert answer.is_complete
    assert chunk_of(answer, event(b"H")) is None
    assert answer.feed(event(b"H")) == []


def test_several_sequences(tokenizer: ChatTokenizer) -> None:
    """Sums in the body, arrays of the longest; each sequence's own figures in its last chunk."""
    answer = answer_of(tokenizer, num_sequences=2)
    assert [chunk.choices[0].index for chunk in answer.opening()] == [0, 1]
    short = chunk_of(answer, event(b"ab", FinishReason.EOS, index=1, step_ms=7))
    assert plain(short)["usage"]["completion_tokens"] == 2
    assert not answer.is_complete
    answer.feed(event(b"cde", FinishReason.LENGTH, index=0, step_ms=5))
    body = plain(answer.completion())
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["usage"]["completion_tokens"] == 5
    assert body["usage"]["total_tokens"] == 14
    assert len(body["usage"]["queue_wait_time"]) == 3
    assert (body["prefill_time"], body["decode_time_arr"]) == (5, [5, 5])


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from("aX語👩\u200dé\n"), max_size=12),
    cuts=st.sets(st.integers(0, 40)),
    stop=st.none() | st.sampled_from(["X", "語a", "aXa"]),
)
def test_deltas_joined_are_the_content(tokenizer: ChatTokenizer, text: str, cuts: set[int], stop: str | None) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)] or [b""]
    stops = [stop] if stop else []
    streamed, whole = answer_of(tokenizer, stops=stops), answer_of(tokenizer, stops=stops)
    chunks = []
    for number, piece in enumerate(pieces):
        finish = FinishReason.LENGTH if number == len(pieces) - 1 else None
        chunks.append(chunk_of(streamed, event(piece, finish)))
    whole.feed(event(data, FinishReason.LENGTH))
    made = [chunk for chunk in chunks if chunk is not None]
    content = whole.completion().choices[0].message.content
    assert "".join(str(chunk.choices[0].delta.content) for chunk in made) == content
    assert [chunk.choices[0].finish_reason for chunk in made[:-1]] == [None] * (len(made) - 1)
    assert made[-1].choices[0].finish_reason == whole.completion().choices[0].finish_reason
    assert all(chunk.choices[0].delta.content for chunk in made[:-1])


CALL = '<tool_call>{"name": "f", "arguments": {"city": "北京"}}</tool_call>'


def parsed(tokenizer: ChatTokenizer, *, reasons: bool = False) -> Answer:
    calls = CallFormat(HERMES, Toolbox([("f", {})]))
    parser = AnswerParser(calls=calls, has_reasoning=reasons, in_reasoning=reasons)
    head = msgspec.structs.replace(HEAD, call_ids=(f"call_0000000{number}" for number in itertools.count()))
    return Answer(head, [SequenceAnswer(SequenceText(tokenizer), parser)], can_reason=reasons)


def test_calls_in_a_body(tokenizer: ChatTokenizer) -> None:
    answer = parsed(tokenizer)
    answer.feed(event(f"Well.\n{CALL}\n{CALL}".encode()))
    answer.feed(event(b"", FinishReason.EOS))
    text = msgspec.json.encode(answer.completion()).decode()
    assert (
        '"message":{"role":"assistant","content":"Well.\\n","tool_calls":['
        '{"function":{"arguments":"{\\"city\\": \\"北京\\"}","name":"f"},"id":"call_00000000","type":"function"},'
        '{"function":{"arguments":"{\\"city\\": \\"北京\\"}","name":"f"},"id":"call_00000001","type":"function"}]}'
    ) in text


def test_calls_in_a_stream(tokenizer: ChatTokenizer) -> None:
    """Reading S13: which call it is, then its arguments; nothing is repeated, nothing is null."""
    answer = parsed(tokenizer)
    chunks = answer.chunks(event(f"a{CALL}{CALL}b".encode(), FinishReason.LENGTH), full_text=False)
    arguments = '{"city": "北京"}'
    choices = [plain(chunk)["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "a"},
        *(
            {"role": "assistant", "tool_calls": [piece]}
            for index in (0, 1)
            for piece in (
                {
                    "index": index,
                    "id": f"call_0000000{index}",
                    "type": "function",
                    "function": {"name": "f", "arguments": ""},
                },
                {"index": index, "function": {"arguments": arguments}},
            )
        ),
        {"role": "assistant", "content": "b"},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None] * 5 + ["length"]
    assert ["usage" in plain(chunk) for chunk in chunks] == [False] * 5 + [True]


def test_a_call_at_the_end_has_the_last_chunk(tokenizer: ChatTokenizer) -> None:
    chunks = parsed(tokenizer).chunks(event(f"{CALL} ".encode(), FinishReason.STOP_TOKEN), full_text=False)
    last = plain(chunks[-1])["choices"][0]
    assert last["finish_reason"] == "tool_calls"
    assert last["delta"]["tool_calls"] == [{"index": 0, "function": {"arguments": '{"city": "北京"}'}}]


def test_reasoning_in_a_body_and_its_tokens(tokenizer: ChatTokenizer) -> None:
    answer = parsed(tokenizer, reasons=True)
    answer.feed(event(b"so</think>yes", FinishReason.LENGTH))
    body = plain(answer.completion())
    assert list(body["choices"][0]["message"]) == ["role", "content", "reasoning_content", "tool_calls"]
    assert body["choices"][0]["message"]["reasoning_content"] == "so"
    assert body["choices"][0]["message"]["content"] == "yes"
    assert list(body["usage"])[2:4] == ["completion_tokens", "completion_tokens_details"]
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("so</think")}


def test_reasoning_in_a_stream(tokenizer: ChatTokenizer) -> None:
    answer = parsed(tokenizer, reasons=True)
    chunks = answer.chunks(event(b"so</think>yes", FinishReason.LENGTH), full_text=True)
    assert [plain(chunk)["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "reasoning_content": "so"},
        {"role": "assistant", "content": "yes"},
    ]
    assert plain(chunks[-1])["full_text"] == "yes"
    assert plain(chunks[-1])["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("so</think")}


def test_cumulative_content_leaves_calls_and_reasoning_alone(tokenizer: ChatTokenizer) -> None:
    answer = parsed(tokenizer)
    chunks = answer.chunks(event(f"a{CALL}b".encode()), full_text=True)
    chunks += answer.chunks(event(b"c", FinishReason.LENGTH), full_text=True)
    contents = [plain(chunk)["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["a", None, None, "ab", "abc"]

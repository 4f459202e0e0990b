"""Answers to judge: good ones, made by hand, and what a change makes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

from conformance.bodies import Body, Change
from conformance.case import CHAT, Call, Case, Check, Expectation, Kind
from conformance.client import Exchange, Sent
from conformance.contract import load_contract
from conformance.judge import judge
from conformance.oracle.registry import Finding
from conformance.oracle.seen import Seen
from conformance.profile import Profile
from conformance.sse import SseReader

MODEL: Final = "m"
SENT: Final = Sent("POST", CHAT, {"Content-Type": "application/json"}, b"{}")
JSON_HEADERS: Final = {"content-type": "application/json"}
STREAM_HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def entry(token: str, logprob: float = -0.5) -> dict[str, Any]:
    """A token with two candidates."""
    own = {"token": token, "logprob": logprob, "bytes": list(token.encode())}
    other = {"token": "z", "logprob": logprob - 1, "bytes": [122]}
    return {**own, "top_logprobs": [own, other]}


def usage(num_tokens: int = 2, total: int | None = None) -> dict[str, Any]:
    """Of a sequence of ``num_tokens``; ``total``: of all sequences, where there are more."""
    completion = num_tokens if total is None else total
    return {
        "prompt_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens": completion,
        "total_tokens": 9 + completion,
        "batch_size": [1] * num_tokens,
        "queue_wait_time": [5] * num_tokens,
    }


CALL: Final = {
    "function": {"arguments": '{"city":"Paris"}', "name": "get_weather"},
    "id": "call_12345678",
    "type": "function",
}


def whole(num_choices: int = 1, *, logprobs: bool = False, calls: bool = False) -> dict[str, Any]:
    """A whole answer of two tokens to a sequence."""
    message = {"role": "assistant", "content": "" if calls else "ab", "tool_calls": [CALL] if calls else []}
    choice = {
        "message": message,
        "logprobs": {"content": [entry("a"), entry("b")]} if logprobs else None,
        "finish_reason": "tool_calls" if calls else "length",
    }
    return copy.deepcopy(
        {
            "id": "endpoint_common_0",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [copy.deepcopy({"index": index, **choice}) for index in range(num_choices)],
            "usage": usage(2, 2 * num_choices),
            "prefill_time": 20,
            "decode_time_arr": [5],
        }
    )


def chunk(index: int, delta: dict[str, Any], finish: str | None = None, entries: list[Any] | None = None) -> Any:
    """A chunk; a finish brings the usage."""
    head = {"id": "endpoint_common_0", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": MODEL}
    figures = {} if finish is None else {"usage": usage()}
    logprobs = None if entries is None else {"content": entries}
    choice = {"index": index, "delta": {"role": "assistant", **delta}, "logprobs": logprobs, "finish_reason": finish}
    return copy.deepcopy({**head, **figures, "choices": [choice]})


def stream(num_choices: int = 1, *, logprobs: bool = False) -> list[Any]:
    """The chunks of a stream of two tokens to a sequence."""
    indices = range(num_choices)
    entries = [[entry("a")], [entry("b")]] if logprobs else [None, None]
    return [
        *(chunk(index, {"content": ""}) for index in indices),
        *(chunk(index, {"content": "a"}, None, entries[0]) for index in indices),
        *(chunk(index, {"content": "b"}, "length", entries[1]) for index in indices),
    ]


def call_stream() -> list[Any]:
    """The chunks of a stream that calls a function."""
    first = {
        "index": 0,
        "id": "call_12345678",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    more = {"index": 0, "function": {"arguments": '{"city":"Paris"}'}}
    return [
        chunk(0, {"content": ""}),
        chunk(0, {"tool_calls": [first]}),
        chunk(0, {"tool_calls": [more]}),
        chunk(0, {"content": ""}, "tool_calls"),
    ]


def frames_of(chunks: list[Any], *, done: bool = True) -> bytes:
    texts = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in chunks] + ["[DONE]"] * done
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def whole_exchange(body: Any) -> Exchange:
    content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return Exchange(SENT, 200, JSON_HEADERS, content)


def stream_exchange(chunks: list[Any] | bytes) -> Exchange:
    body = chunks if isinstance(chunks, bytes) else frames_of(chunks)
    reader = SseReader(1 << 20)
    frames = tuple(reader.feed(body))
    return Exchange(SENT, 200, STREAM_HEADERS, body, frames, reader.rest)


def refusal_exchange(status: int, text: str = "top_k must be", error_type: str = "Input Validation Error") -> Exchange:
    return Exchange(SENT, status, JSON_HEADERS, json.dumps({"error": text, "error_type": error_type}).encode())


def seen_of(asked: Body, exchange: Exchange, dialect: str = "vllm") -> Seen:
    return Seen(load_contract(dialect), Profile(dialect=dialect), MODEL, asked, exchange)


def findings(
    exchange: Exchange, put: dict[str, Any] | None = None, *, expect: Expectation | None = None, base: str = "plain",
    others: list[Exchange] | None = None, shorter: list[Exchange] | None = None, dialect: str = "vllm",
) -> list[Finding]:  # fmt: skip
    """What the oracle finds in an answer to a request of two tokens, or to another one."""
    change = Change(base, {"max_tokens": 2, **(put or {})})
    case = Case(
        id="test.case", theme="test", says="-", call=Call(change=change), expect=expect or Expectation(kind=Kind.ANSWER)
    )
    seen = seen_of(change.body(MODEL), exchange, dialect)
    seen.others = [seen_of(change.body(MODEL), other, dialect) for other in others or []]
    seen.shorter = [seen_of(change.body(MODEL), other, dialect) for other in shorter or []]
    return judge(case, seen)


def named(name: str, argument: Any = None) -> Expectation:
    """An answer that must keep one more invariant."""
    return Expectation(kind=Kind.ANSWER, checks=(Check(name, argument),))


def refused(status: int = 422, names: str | None = "top_k") -> Expectation:
    return Expectation(kind=Kind.REFUSED, status=status, names=names)


def changed(value: Any, change: Callable[[Any], object]) -> Any:
    """A copy that ``change`` has altered in place."""
    copied = copy.deepcopy(value)
    change(copied)
    return copied

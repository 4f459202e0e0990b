"""Whatever a server does, a run ends in time and memory, without a traceback, and says what happened."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any, Final

import pytest

from conformance.capabilities import capability_names
from conformance.client import MAX_SILENCES
from conformance.profile import Profile
from conformance.results import CaseResult, Exit, Report, Result
from conformance.run import run_suite
from conformance.settings import Settings
from tests.conformance.exchanges import whole
from tests.conformance.hostile import OK, STREAM_HEAD, Answer, hostile_server, json_head

BLIND: Final = Profile(capabilities=dict.fromkeys(capability_names(), False))
"""Nothing is found out first."""
STREAM, WHOLE = "stream.plain", "whole.plain"


async def _run(answer: Answer, *only: str, **settings: Any) -> Report:
    bounds = {"request_timeout_s": 20.0, "max_body_bytes": 200_000, "max_events": 500, **settings}
    async with hostile_server(answer) as url:
        return await run_suite(Settings(base_url=url, model="m", only=frozenset(only), profile=BLIND, **bounds))


async def _one(answer: Answer, case: str, **settings: Any) -> CaseResult:
    (result,) = (await _run(answer, case, **settings)).cases
    return result


async def _endless_events(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD)
    while True:
        writer.write(b"data: {}\n\n" * 100)
        await writer.drain()


async def _endless_line(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + b"data: ")
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


async def _endless_body(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(json_head(1 << 40))
    while True:
        writer.write(b" " * 10_000)
        await writer.drain()


async def _drip(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD)
    while True:
        writer.write(b": \n")
        await writer.drain()
        await asyncio.sleep(0.01)  # the fault itself, not a wait


async def _nothing(request: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.get_running_loop().create_future()


async def _half(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(json_head(1000) + b'{"id":')


async def _bomb(request: bytes, writer: asyncio.StreamWriter) -> None:
    body = gzip.compress(b" " * 50_000_000)
    writer.write(json_head(len(body), b"Content-Encoding: gzip") + body)


async def _no_http(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff" * 1000)


async def _endless_head(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    while True:
        writer.write(b"X-A: " + b"x" * 5000 + b"\r\n")
        await writer.drain()


async def _bad_utf8(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + b"data: \xff\xfe\n\ndata: [DONE]\n\n")


async def _deep(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(json_head(100_000) + b"[" * 100_000)


async def _nested(request: bytes, writer: asyncio.StreamWriter) -> None:
    """More than a validator walks through, less than a parser does."""
    writer.write(json_head(600) + b"[" * 300 + b"]" * 300)


async def _redirect(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "case", "invariant"),
    [
        (_endless_events, STREAM, "answer-size"),
        (_endless_line, STREAM, "answer-size"),
        (_endless_body, WHOLE, "answer-size"),
        (_bomb, WHOLE, "answer-not-encoded"),
        (_half, WHOLE, "answer-complete"),
        (_no_http, WHOLE, "answer-complete"),
        (_endless_head, WHOLE, "answer-complete"),
        (_bad_utf8, STREAM, "frame-bytes"),
        (_deep, WHOLE, "body-schema"),
        (_nested, WHOLE, "body-schema"),
        (_redirect, WHOLE, "status"),
    ],
)
async def test_each_is_a_failure_with_its_name(answer: Answer, case: str, invariant: str) -> None:
    result = await _one(answer, case)
    assert result.result is Result.FAIL, result.message
    assert invariant in result.invariants


@pytest.mark.parametrize("answer", [_drip, _nothing])
async def test_slowness_is_bounded(answer: Answer) -> None:
    result = await _one(answer, STREAM, request_timeout_s=0.3)
    assert (result.result, result.invariants) == (Result.FAIL, ["answer-in-time"])


async def test_events_are_counted_where_they_are_small() -> None:
    result = await _one(_endless_events, STREAM, max_body_bytes=1 << 40)
    assert "500 events" in result.message


async def test_of_an_endless_body_little_is_kept() -> None:
    result = await _one(_endless_body, WHOLE)
    assert len(result.exchanges[0].body) == 200_000


async def test_a_run_is_bounded_and_every_case_has_its_line() -> None:
    report = await _run(_drip, "stream.*", total_timeout_s=0.5)
    assert {one.result for one in report.cases} <= {Result.UNSUPPORTED, Result.UNREACHABLE}
    assert report.exit_code is Exit.COULD_NOT_TEST
    assert "0.5 s" in next(one for one in report.cases if one.result is Result.UNREACHABLE).message


async def test_a_server_that_never_answers_is_given_up() -> None:
    report = await _run(_nothing, "request.n.*", request_timeout_s=0.1, concurrency=1)
    asked = [one for one in report.cases if one.result is Result.FAIL]
    assert len(asked) < MAX_SILENCES
    assert any("in a row" in one.message for one in report.cases if one.result is Result.UNREACHABLE)


async def test_no_server_is_unreachable() -> None:
    async with hostile_server(_nothing) as url:
        pass
    report = await run_suite(Settings(base_url=url, model="m", only=frozenset({"plane.*"})))
    assert {one.result for one in report.cases} == {Result.UNREACHABLE}
    assert report.exit_code is Exit.COULD_NOT_TEST


async def test_an_overloaded_server_is_asked_again_in_its_own_time() -> None:
    """The third answer is a good one."""
    num_asked = 0

    async def busy(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal num_asked
        num_asked += b"POST" in request
        if num_asked <= 3:  # the first is the question whether the model is served
            head = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
            writer.write(head)
        else:
            body = json.dumps(whole()).encode()
            writer.write(json_head(len(body)) + body)

    result = await _one(busy, WHOLE)
    assert result.exchanges[0].status == 200
    assert num_asked > 3

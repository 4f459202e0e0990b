from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pytest

from mindserve.chat.prompt import SHORT_PIECES, PromptPool
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve.errors import RefusalKind, RequestRefused

Tokenizers = Callable[[str], ChatTokenizer]
USER = {"role": "user", "content": "hello"}


class Gate:
    """A job that runs until it is let go."""

    made: ClassVar[list[Gate]] = []

    def __init__(self) -> None:
        self.started = threading.Event()
        self._opened = threading.Event()
        self.made.append(self)

    def __call__(self) -> str:
        self.started.set()
        self._opened.wait()
        return "done"

    def open(self) -> None:
        self._opened.set()

    async def until_started(self) -> None:
        await asyncio.to_thread(self.started.wait)


@pytest.fixture(autouse=True)
def _open_gates() -> Iterator[None]:
    """A test that fails leaves no worker behind a closed gate: the process could not end."""
    yield
    while Gate.made:
        Gate.made.pop().open()


async def until(condition: Callable[[], bool]) -> None:
    for _ in itertools.takewhile(lambda _: not condition(), itertools.count()):
        await asyncio.sleep(0)


@pytest.fixture
async def pool(tokenizer_of: Tokenizers) -> AsyncIterator[PromptPool]:
    """One worker, room for one more job."""
    pool = PromptPool(tokenizer_of("chatml"), num_workers=1, max_waiting=1)
    yield pool
    pool.close()


@pytest.fixture
async def gate(pool: PromptPool) -> AsyncIterator[Gate]:
    """The job that keeps the worker busy."""
    gate = Gate()
    task = asyncio.create_task(pool.run(gate))
    await gate.until_started()
    yield gate
    gate.open()
    await task


async def test_prompts_are_rendered(pool: PromptPool, tokenizer_of: Tokenizers) -> None:
    kwargs = {"enable_thinking": False}
    assert await pool.render([USER], template_kwargs=kwargs) == tokenizer_of("chatml").render_chat(
        [USER], template_kwargs=kwargs
    )
    lengths: list[int] = []
    num_tokens = len(await pool.render([USER], check_length=lengths.append))
    assert lengths == [num_tokens]
    await until(lambda: pool.num_jobs == 0)


async def test_one_job_too_many_is_refused(pool: PromptPool, gate: Gate) -> None:
    waiting = asyncio.create_task(pool.render([USER]))
    await until(lambda: pool.num_jobs == 2)
    with pytest.raises(RequestRefused) as error:
        await pool.render([USER])
    assert error.value.kind is RefusalKind.OVERLOADED
    assert error.value.retry_after_s is not None
    assert error.value.retry_after_s >= 1
    gate.open()
    assert await waiting
    assert await pool.render([USER])


async def test_long_jobs_leave_the_workers_to_short_ones(pool: PromptPool) -> None:
    """Long ones run one at a time, be they called so or seen to be."""
    first, second = Gate(), Gate()
    long_jobs = [asyncio.create_task(pool.run(gate, is_long=True)) for gate in (first, second)]
    await first.until_started()
    assert await pool.run(lambda: "short") == "short"
    assert not second.started.is_set()
    first.open()
    second.open()
    assert await asyncio.gather(*long_jobs) == ["done", "done"]


CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
PARTS = [{"type": "text", "text": "x"}]


@pytest.mark.parametrize(
    ("messages", "is_long"),
    [
        ([USER] * SHORT_PIECES, False),
        ([USER] * (SHORT_PIECES + 1), True),
        ([USER, {"role": "assistant", "content": "", "tool_calls": CALLS * SHORT_PIECES}], True),
        ([{"role": "user", "content": PARTS * SHORT_PIECES}], True),
    ],
    ids=["short", "messages", "calls", "parts"],
)
async def test_many_pieces_make_a_long_job(
    tokenizer_of: Tokenizers, messages: list[dict[str, Any]], *, is_long: bool
) -> None:
    pool = PromptPool(tokenizer_of("chatml"), num_workers=1, max_waiting=9)
    short, long = Gate(), Gate()
    gates = [asyncio.create_task(pool.run(short)), asyncio.create_task(pool.run(long, is_long=True))]
    await short.until_started()
    await long.until_started()
    rendering = asyncio.create_task(pool.render(messages))
    await until(lambda: pool.num_jobs == 3)
    (long if is_long else short).open()
    assert await rendering  # its own lane was let go, the other one stands still
    assert not (gates[0] if is_long else gates[1]).done()
    short.open()
    long.open()
    await asyncio.gather(*gates)
    pool.close()


async def test_a_cancelled_caller_takes_its_waiting_job_along(pool: PromptPool, gate: Gate) -> None:
    never = Gate()
    waiting = asyncio.create_task(pool.run(never))
    await until(lambda: pool.num_jobs == 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: pool.num_jobs == 1)
    gate.open()
    assert await pool.render([USER])
    assert not never.started.is_set()


async def test_a_cancelled_caller_leaves_a_running_job_its_worker(pool: PromptPool) -> None:
    gate = Gate()
    task = asyncio.create_task(pool.run(gate))
    await gate.until_started()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.num_jobs == 1
    gate.open()
    await until(lambda: pool.num_jobs == 0)


async def test_time_spent_running_is_limited(tokenizer_of: Tokenizers) -> None:
    pool = PromptPool(tokenizer_of("chatml"), num_workers=1, max_waiting=1, timeout_s=0.05)
    gate = Gate()
    with pytest.raises(RequestRefused, match="longer than the setting tokenizerTimeout allows") as error:
        await pool.run(gate)
    assert error.value.kind is RefusalKind.UNAVAILABLE
    assert error.value.retry_after_s is not None
    gate.open()
    pool.close()


async def test_time_spent_waiting_is_limited(tokenizer_of: Tokenizers) -> None:
    pool = PromptPool(tokenizer_of("chatml"), num_workers=1, max_waiting=1, timeout_s=0.05)
    gate = Gate()
    running = asyncio.create_task(pool.run(gate))
    await gate.until_started()
    with pytest.raises(RequestRefused, match="no worker was free") as error:
        await pool.render([USER])
    assert error.value.kind is RefusalKind.OVERLOADED
    gate.open()
    with pytest.raises(RequestRefused):
        await running
    pool.close()


async def test_closing_drops_what_waits(tokenizer_of: Tokenizers) -> None:
    pool = PromptPool(tokenizer_of("chatml"), num_workers=1, max_waiting=1)
    gate = Gate()
    running = asyncio.create_task(pool.run(gate))
    await gate.until_started()
    waiting = asyncio.create_task(pool.render([USER]))
    await until(lambda: pool.num_jobs == 2)
    pool.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.open()
    assert await running == "done"

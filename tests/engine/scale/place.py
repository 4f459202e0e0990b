"""Engines for the tests of this folder, and the processes behind them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil

from mindserve_engine.interface import Engine
from mindserve_engine.options import EngineOptions, VllmOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.types import GenerationRequest, SamplingParams, SequenceEvent
from tests.engine.contract.subjects import children

BOUND_S = 15.0
"""From the loss of a part to the error of what ran there."""
CONTEXT = 384


def options(model: Path, **vllm: Any) -> EngineOptions:
    return EngineOptions(
        model_path=model,
        dtype="float32",
        max_context=CONTEXT,
        max_batch_size=4,
        max_step_tokens=256,
        block_size=32,
        kv_memory_gb=0.25,
        engine_args={"enforce_eager": True},
        vllm=VllmOptions(**vllm),
    )


@contextlib.asynccontextmanager
async def started(model: Path, **vllm: Any) -> AsyncIterator[Engine]:
    engine = create_engine("vllm", options(model, **vllm))
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


def ask(name: str, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_token_ids=[72, 101, 108],
        max_tokens=max_tokens,
        sampling=SamplingParams(temperature=0.0),
        ignore_eos=True,
    )


async def tokens(engine: Engine, name: str, max_tokens: int = 6) -> list[int]:
    generation = await engine.admit(ask(name, max_tokens))
    return [token async for event in generation for token in event.token_ids]


async def running(engine: Engine, name: str) -> AsyncIterator[SequenceEvent]:
    """The rest of a long answer whose first tokens are there."""
    stream = aiter(await engine.admit(ask(name, CONTEXT - 8)))
    await anext(stream)
    return stream


async def drain(stream: AsyncIterator[SequenceEvent]) -> None:
    async for _ in stream:
        pass


def named(part: str) -> list[psutil.Process]:
    """vLLM's processes whose name has ``part`` in it."""
    return sorted((one for one in children() if part in _title(one)), key=lambda one: (_title(one), one.pid))


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join([process.name(), *process.cmdline()])
    return ""


def kill(process: psutil.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)

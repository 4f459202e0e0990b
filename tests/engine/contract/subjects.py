"""The engines under the contract, each with a small model, and how tests talk to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from mindserve_engine.interface import Engine
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine, engine_names
from mindserve_engine.types import GenerationRequest, SamplingParams, SequenceEvent, Vocabulary
from tests import tiny_adapters, tiny_models

NAMES: Final = engine_names()
MAX_CONTEXT: Final = 384
MAX_BATCH_SIZE: Final = 8
MAX_STEP_TOKENS: Final = 256
MAX_WAITING: Final = 2
ADAPTER: Final = "tuned"
PROMPT: Final = [72, 101, 108, 108, 111]
GREEDY: Final = SamplingParams(temperature=0.0)
SIZES: Final = {"hidden_size": 128, "head_dim": 32}
"""Heads of a size that vLLM's CPU kernels know; four of them, so that the model can be cut for two workers."""
_SCRIPT: Final = """
- default: true
  pieces: [a, b, c, d, e]
  logprobs: [-0.5, -1, -2]
  delay_ms: 2
"""


@dataclass
class Subject:
    """One started engine."""

    name: str
    engine: Engine
    model: Path
    adapter: Path
    counter: list[int] = field(default_factory=lambda: [0])

    @property
    def computes(self) -> bool:
        """Whether tokens depend on a model: those of a script do not."""
        return self.name != "scripted"

    def ask(self, prompt: list[int] | None = None, max_tokens: int = 8, **fields: Any) -> GenerationRequest:
        """A request with an id of its own, greedy unless said otherwise."""
        self.counter[0] += 1
        settings = {"request_id": f"r{self.counter[0]}", "sampling": GREEDY, **fields}
        return GenerationRequest(prompt_token_ids=prompt or PROMPT, max_tokens=max_tokens, **settings)

    async def run(self, *args: Any, **fields: Any) -> list[SequenceEvent]:
        """All events of one request."""
        return await self.collect(self.ask(*args, **fields))

    async def collect(self, request: GenerationRequest) -> list[SequenceEvent]:
        return [event async for event in await self.engine.admit(request)]

    async def tokens(self, *args: Any, **fields: Any) -> list[list[int]]:
        """The tokens of each sequence."""
        return tokens_of(await self.run(*args, **fields))

    async def idle(self) -> None:
        """Until nothing runs and nothing waits."""
        await until(lambda: (stats := self.engine.stats()).num_running + stats.num_waiting == 0)


def tokens_of(events: list[SequenceEvent]) -> list[list[int]]:
    indices = sorted({event.index for event in events})
    return [[token for event in events if event.index == index for token in event.token_ids] for index in indices]


def ends_of(events: list[SequenceEvent]) -> dict[int, Any]:
    return {event.index: event.finish_reason for event in events if event.finish_reason is not None}


def total_logprob(events: list[SequenceEvent], index: int) -> float:
    return sum(entry.logprob for event in events if event.index == index for entry in event.logprobs)


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for what another process brings about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - another process moves it
            await asyncio.sleep(0.01)


def children() -> list[psutil.Process]:
    """All processes below this one that live."""
    return [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]


def build(name: str, folder: Path) -> Subject:
    """Its files are written; the engine is yet to be started."""
    if name == "scripted":
        model = adapter = folder / "script.yaml"
        model.write_text(_SCRIPT)
    else:
        model = tiny_models.build("llama", folder / "model", **SIZES)
        adapter = folder / "adapter"
        tiny_adapters.write(model, adapter, seed=5)
    return Subject(name, create_engine(name, options(name, model, adapter)), model, adapter)


def options(name: str, model: Path, adapter: Path) -> EngineOptions:
    vllm = {"enforce_eager": True}
    return EngineOptions(
        model_path=model,
        dtype="float32",
        max_context=MAX_CONTEXT,
        max_batch_size=MAX_BATCH_SIZE,
        max_waiting=MAX_WAITING,
        max_step_tokens=MAX_STEP_TOKENS,
        block_size=32,
        kv_memory_gb=0.25,
        num_threads=1,
        adapters={ADAPTER: adapter},
        engine_args=vllm if name == "vllm" else {},
    )


def vocabulary() -> Vocabulary:
    """Of the tiny models: a token per byte, then the special ones; ids beyond them stand for nothing."""
    tokenizer = tiny_models.tokenizer()
    pieces = [tokenizer.convert_ids_to_tokens(number) for number in range(len(tokenizer))]
    decode = {character: byte for byte, character in _byte_characters().items()}
    texts = [bytes(decode[character] for character in piece) for piece in pieces[:256]]
    texts += [piece.encode() for piece in pieces[256:]]
    texts += [b""] * (tiny_models.VOCAB_SIZE - len(texts))
    return Vocabulary(
        token_bytes=texts,
        special_token_ids=list(range(256, len(pieces))),
        eos_token_ids=(tiny_models.IM_END,),
        tokenizer_json=tokenizer.backend_tokenizer.to_str(),
    )


def _byte_characters() -> dict[int, str]:
    """The character by which byte-level tokenizers write each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + number) for number, byte in enumerate(others)}

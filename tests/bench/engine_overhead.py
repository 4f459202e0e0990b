"""What the native engine costs beside the model: microseconds per step of decodes, on a runner that computes nothing.

First in this process, part by part, then over the engine process as a whole. Run it by itself on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from mindserve_engine.interface import Generation
from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.native.ledger import Ledger
from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.native.wire import Step, decode_from_core, encode
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, GenerationRequest

BLOCK_SIZE, NUM_BLOCKS = 128, 4096
PROMPT = [1] * 500
INFO = EngineInfo(model_type="none", vocab_size=9, max_context=8192, max_prompt_tokens=8191, block_size=BLOCK_SIZE)


class NothingRunner:
    def __init__(self) -> None:
        self.num_blocks, self.block_size = NUM_BLOCKS, BLOCK_SIZE
        self.encoder: Encoder | None = None

    def run(self, batch: StepBatch) -> list[Sampled]:
        return [Sampled(7) for _ in batch.samples]

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        pass

    def forget(self, sequence_id: int) -> None:
        pass


@dataclass
class Loaded:
    runner: NothingRunner
    info: EngineInfo


def load_runner(*_: object) -> Loaded:
    """Called in the engine process."""
    return Loaded(NothingRunner(), INFO)


def options() -> EngineOptions:
    return EngineOptions(model_path=Path("none"), runner="engine_overhead:load_runner", max_step_tokens=10**6)


def requests(num_sequences: int, num_steps: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(request_id=f"chatcmpl-{number:032}", prompt_token_ids=PROMPT, max_tokens=num_steps)
        for number in range(num_sequences)
    ]


def _let_go(request_id: str, index: int | None) -> None:
    """Nobody leaves."""


async def consume(generation: Generation) -> None:
    async for _ in generation:
        pass


async def parts(num_sequences: int, num_steps: int) -> dict[str, float]:
    """Seconds spent in each part."""
    loop, ledger = EngineLoop(NothingRunner(), INFO, options()), Ledger(max_batch_size=num_sequences)
    consumers = []
    for request in requests(num_sequences, num_steps):
        loop.add(request, time.monotonic())
        consumers.append(asyncio.ensure_future(consume(ledger.open(request, _let_go, BLOCK_SIZE))))
    names = ("schedule, flatten, take", "encode", "decode", "dispatch", "consumers")
    seconds = dict.fromkeys(names, 0.0)
    while loop.has_work:
        times = [time.perf_counter()]
        events = loop.step()
        times.append(time.perf_counter())
        data = encode(Step(loop.stats(), events))
        times.append(time.perf_counter())
        message = decode_from_core(data)
        assert isinstance(message, Step)
        times.append(time.perf_counter())
        ledger.take(message)
        times.append(time.perf_counter())
        await asyncio.sleep(0)
        times.append(time.perf_counter())
        for name, began, ended in zip(names, times, times[1:], strict=False):
            seconds[name] += ended - began
    await asyncio.gather(*consumers)
    return seconds


async def whole(num_sequences: int, num_steps: int) -> float:
    """Seconds from the first request to the last token, through the engine process."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    engine = NativeEngine(options())
    await engine.start()
    began = time.perf_counter()
    await asyncio.gather(*[consume(await engine.admit(request)) for request in requests(num_sequences, num_steps)])
    seconds = time.perf_counter() - began
    await engine.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 32, 200])
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    for num_sequences in arguments.sequences:
        seconds = asyncio.run(parts(num_sequences, arguments.steps))
        seconds["total"] = sum(seconds.values())
        seconds["through the process"] = asyncio.run(whole(num_sequences, arguments.steps))
        figures = (f"{name} {value / arguments.steps * 1e6:.0f}" for name, value in seconds.items())
        print(f"{num_sequences} sequences, us per step: {'; '.join(figures)}")


if __name__ == "__main__":
    main()

"""Draws that vLLM takes back: of a prompt that is computed in pieces it samples after each, and throws away all but the
last of what it has drawn. It then turns the generator of the request's seed back by an offset, which those of a CPU do
not have: one prompt with a seed that is longer than a step would end the engine, and all its requests with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def keep_undrawn(runner: Any) -> None:
    """``runner``: vLLM's ``GPUModelRunner`` on a CPU. What it throws away leaves its generators as they were."""
    sample, book = runner._sample, runner._bookkeeping_sync

    def sample_and_turn_back(*args: Any, **named: Any) -> Any:
        before = [(generator, generator.get_state()) for generator in _of_thrown_away(runner)]
        try:
            return sample(*args, **named)
        finally:
            for generator, state in before:
                generator.set_state(state)

    def book_without_turning_back(*args: Any, **named: Any) -> Any:
        batch = runner.input_batch
        generators, batch.generators = batch.generators, {}
        try:
            return book(*args, **named)
        finally:
            batch.generators = generators

    runner._sample, runner._bookkeeping_sync = sample_and_turn_back, book_without_turning_back


def _of_thrown_away(runner: Any) -> Iterator[Any]:
    batch = runner.input_batch
    for row in runner.discard_request_mask.np[: batch.num_reqs].nonzero()[0]:
        generator = batch.generators.get(int(row))
        if generator is not None:
            yield generator

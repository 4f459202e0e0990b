"""Measures what steps cost and how a server behaves, and draws it: figures as JSON, plots as PNG.

``make bench-report`` writes both where ``spec/docs/performance.md`` shows them. It takes about ten minutes and wants a
quiet machine.
"""

from __future__ import annotations

import argparse
import datetime
import os
from pathlib import Path
from typing import Final

import msgspec
from plots import draw_batches, draw_contexts, draw_memory
from rich.console import Console
from service import Behaviour, behaviour
from steps import (
    BATCHES,
    CONTEXT_BATCHES,
    CONTEXTS,
    SHORT,
    PrefillCost,
    StepCost,
    decode_cost,
    load,
    options,
    prefill_cost,
)

DOCS: Final = Path(__file__).parents[2] / "spec" / "docs"


class Figures(msgspec.Struct, frozen=True):
    """All that one run measured."""

    date: datetime.date
    processor: str
    cores: int
    by_batch: list[StepCost]
    by_batch_deterministic: list[StepCost]
    by_context: list[StepCost]
    prefill: list[PrefillCost]
    prefill_deterministic: list[PrefillCost]
    behaviour: Behaviour | None = None
    """Of a server; measured last."""


def measure(console: Console) -> Figures:
    """Steps in this process, in both modes by turns."""
    usual, exact = options(), options(deterministic=True)
    loaded, loaded_exact = load(usual), load(exact)
    by_batch, by_batch_exact, prefill, prefill_exact = [], [], [], []
    for batch in BATCHES:
        by_batch.append(decode_cost(loaded, usual, batch=batch, context=SHORT))
        by_batch_exact.append(decode_cost(loaded_exact, exact, batch=batch, context=SHORT))
        console.print(by_batch[-1], by_batch_exact[-1])
    for tokens in CONTEXTS:
        prefill.append(prefill_cost(loaded, usual, tokens))
        prefill_exact.append(prefill_cost(loaded_exact, exact, tokens))
        console.print(prefill[-1], prefill_exact[-1])
    by_context = []
    for batch, contexts in CONTEXT_BATCHES:
        for context in contexts:
            by_context.append(decode_cost(loaded, usual, batch=batch, context=context))
            console.print(by_context[-1])
    return Figures(
        date=datetime.datetime.now(datetime.UTC).date(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        by_batch=by_batch,
        by_batch_deterministic=by_batch_exact,
        by_context=by_context,
        prefill=prefill,
        prefill_deterministic=prefill_exact,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def draw(figures: Figures, images: Path) -> None:
    draw_batches(images / "step-batch.png", figures.by_batch, figures.by_batch_deterministic)
    draw_contexts(images / "step-context.png", figures.by_context, figures.prefill)
    draw_memory(images / "step-memory.png", figures.by_batch, figures.by_context)


def main() -> None:
    """Measure or read, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=DOCS, help="folder of performance.json and images/")
    parser.add_argument("--draw-only", action="store_true", help="draw the figures that are there")
    chosen = parser.parse_args()
    console = Console()
    held = chosen.into / "performance.json"
    if not chosen.draw_only:
        figures = measure(console)
        _hold(held, figures)  # what follows may fail
        _hold(held, msgspec.structs.replace(figures, behaviour=behaviour()))
    figures = msgspec.json.decode(held.read_bytes(), type=Figures)
    draw(figures, chosen.into / "images")
    console.print(figures.behaviour)


def _hold(held: Path, figures: Figures) -> None:
    held.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")


if __name__ == "__main__":
    main()

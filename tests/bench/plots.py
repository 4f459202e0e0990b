"""Pictures of what steps cost, from the figures of ``report.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from steps import PrefillCost, StepCost

_SIZE: Final = (9.0, 3.6)
"""Inches, of two plots side by side."""


def draw_batches(into: Path, usual: list[StepCost], deterministic: list[StepCost]) -> None:
    """Step time and throughput against the number of sequences."""
    figure, (left, right) = _two()
    for label, costs in (("default", usual), ("deterministic", deterministic)):
        batches = [cost.batch for cost in costs]
        left.plot(batches, [cost.step_ms for cost in costs], marker="o", label=label)
        right.plot(batches, [cost.batch * 1e3 / cost.step_ms for cost in costs], marker="o", label=label)
    for axes, name in ((left, "one step, ms"), (right, "decoded tokens per second")):
        _name(axes, "sequences in the batch", name)
    left.set_title(f"Decoding at {usual[0].context} tokens of context")
    _save(figure, into)


def draw_contexts(into: Path, costs: list[StepCost], prefills: list[PrefillCost]) -> None:
    """Step time against the context, and the speed of prompts against their length."""
    figure, (left, right) = _two()
    for batch in sorted({cost.batch for cost in costs}):
        chosen = [cost for cost in costs if cost.batch == batch]
        label = f"{batch} sequence{'s' * (batch > 1)}"
        left.plot([cost.context for cost in chosen], [cost.step_ms for cost in chosen], marker="o", label=label)
    right.plot([one.tokens for one in prefills], [one.tokens_per_s for one in prefills], marker="o", label="one prompt")
    _name(left, "tokens of context", "one step, ms")
    _name(right, "tokens of the prompt", "prompt tokens per second")
    _save(figure, into)


def draw_memory(into: Path, by_batch: list[StepCost], by_context: list[StepCost]) -> None:
    """Keys and values against the number of sequences and against the context."""
    figure, (left, right) = _two()
    left.plot(
        [cost.batch for cost in by_batch], [cost.kv_mb for cost in by_batch], marker="o", label="128-token blocks"
    )
    for batch in sorted({cost.batch for cost in by_context}):
        chosen = [cost for cost in by_context if cost.batch == batch]
        label = f"{batch} sequence{'s' * (batch > 1)}"
        right.plot([cost.context for cost in chosen], [cost.kv_mb for cost in chosen], marker="o", label=label)
    _name(left, f"sequences at {by_batch[0].context} tokens of context", "keys and values, MB")
    _name(right, "tokens of context", "keys and values, MB")
    _save(figure, into)


def _two() -> tuple[Figure, tuple[Axes, Axes]]:
    mpl.use("Agg")
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def _name(axes: Axes, below: str, beside: str) -> None:
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _save(figure: Figure, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(into, dpi=110, metadata={"Software": None})

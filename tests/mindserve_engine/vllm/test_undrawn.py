"""What vLLM throws away of a prompt in pieces is not drawn: with a played runner of its own ways, as of vLLM 0.32."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mindserve_engine.vllm.undrawn import keep_undrawn


@dataclass
class Runner:
    """Draws a number for each row with a generator, and turns back those of rows that are not at their end."""

    unfinished: list[bool]
    generators: dict[int, torch.Generator]
    fails: bool = False
    input_batch: Any = field(init=False)
    discard_request_mask: Any = field(init=False)

    def __post_init__(self) -> None:
        self.input_batch = SimpleNamespace(num_reqs=len(self.unfinished), generators=self.generators)
        padded = [*self.unfinished, True, True]  # rows of no request
        self.discard_request_mask = SimpleNamespace(np=np.array(padded))

    def _sample(self, scale: float, *, shift: float) -> dict[int, float]:
        drawn = {row: float(torch.rand(1, generator=one)) for row, one in self.generators.items()}
        if self.fails:
            raise RuntimeError("no numbers")
        return {row: scale * value + shift for row, value in drawn.items()}

    def _bookkeeping_sync(self, output: dict[int, float]) -> list[int]:
        for row, unfinished in enumerate(self.unfinished):
            generator = self.input_batch.generators.get(row)
            if unfinished and generator is not None:
                generator.set_offset(generator.get_offset() - 4)
        return sorted(output)


def seeded(*rows: int) -> dict[int, torch.Generator]:
    return {row: torch.Generator().manual_seed(row) for row in rows}


def first_draw(row: int) -> float:
    return float(torch.rand(1, generator=torch.Generator().manual_seed(row)))


def test_without_it_one_request_ends_all() -> None:
    runner = Runner([True, False], seeded(0, 1))
    with pytest.raises(RuntimeError, match="offset"):
        runner._bookkeeping_sync(runner._sample(1, shift=0))


def test_what_is_thrown_away_is_not_drawn() -> None:
    runner = Runner([True, False, True], seeded(0, 1))  # the third has no seed
    keep_undrawn(runner)
    assert runner._bookkeeping_sync(runner._sample(1, shift=0)) == [0, 1]
    assert runner.input_batch.generators is runner.generators
    runner.discard_request_mask.np[:3] = runner.unfinished[:] = [False, False, False]
    again = runner._sample(2, shift=1)
    assert again[0] == 2 * first_draw(0) + 1
    assert again[1] != 2 * first_draw(1) + 1


def test_a_step_that_fails_leaves_the_generators() -> None:
    runner = Runner([True], seeded(0), fails=True)
    keep_undrawn(runner)
    with pytest.raises(RuntimeError, match="no numbers"):
        runner._sample(1, shift=0)
    assert float(torch.rand(1, generator=runner.generators[0])) == first_draw(0)

"""Rows for the sampler's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindserve_engine.native.batch import SampleRow
from mindserve_engine.types import SamplingParams


def row(
    sequence_id: int = 0,
    *,
    position: int | None = None,
    index: int = 0,
    prompt: Sequence[int] = (0,),
    output: Sequence[int] = (),
    **params: Any,
) -> SampleRow:
    return SampleRow(
        sequence_id=sequence_id,
        row=0,
        params=SamplingParams(**params),
        index=index,
        position=len(output) if position is None else position,
        prompt_token_ids=list(prompt),
        output_token_ids=list(output),
    )

"""Which rows of a step belong to which adapter."""

from __future__ import annotations

from mindserve_engine.native.batch import StepBatch


def rows_by_adapter(batch: StepBatch) -> dict[str, list[int]]:
    """[n] rows of the flattened batch for each adapter in it."""
    rows: dict[str, list[int]] = {}
    start = 0
    for adapter, end in zip(batch.adapters, batch.query_ends, strict=False):
        if adapter is not None:
            rows.setdefault(adapter, []).extend(range(start, end))
        start = end
    return rows

"""Graphs of a GPU: all that changes between replays lies in the device's memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class CudaStep:
    """Implements ``CapturedStep``."""

    def __init__(self, graph: torch.cuda.CUDAGraph, output: Tensor) -> None:
        self._graph = graph
        self.output = output

    def replay(self, kv_lengths: list[int]) -> None:
        """The lengths are read from the device, where they have been uploaded."""
        self._graph.replay()


class CudaGraphs:
    """Implements ``GraphBackend``. All graphs share one pool of memory: only one runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def host_buffer(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64, pin_memory=True)

    def capture(self, run: Callable[[], Tensor]) -> CudaStep:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = run()
        return CudaStep(graph, output)

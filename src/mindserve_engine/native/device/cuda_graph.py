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

    def release(self) -> None:
        self._graph.reset()


class CudaGraphs:
    """Implements ``GraphBackend``."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def new_pool(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, run: Callable[[], Tensor]) -> CudaStep:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = run()
        return CudaStep(graph, output)

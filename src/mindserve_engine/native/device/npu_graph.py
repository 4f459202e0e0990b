"""Graphs of an NPU: attention takes the lengths of sequences as numbers of the host, which each replay renews."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mindserve_engine.native.device.npu_operators import NpuRuntime


class NpuStep:
    """Implements ``CapturedStep``."""

    def __init__(self, graph: Any, output: Tensor) -> None:
        self._graph = graph
        self.output = output

    def replay(self, kv_lengths: list[int]) -> None:
        # one entry holds for all layers
        self._graph.update(cpu_update_input=[{"actual_seq_lengths_kv": kv_lengths}])
        self._graph.replay()

    def release(self) -> None:
        self._graph.reset()


class NpuGraphs:
    """Implements ``GraphBackend``."""

    def __init__(self, runtime: NpuRuntime) -> None:
        self._runtime = runtime
        self._pool = runtime.graph_pool_handle()

    def new_pool(self) -> None:
        self._pool = self._runtime.graph_pool_handle()

    def capture(self, run: Callable[[], Tensor]) -> NpuStep:
        graph = self._runtime.NPUGraph()
        # auto_dispatch_capture makes each call of attention a task of its own that ``update`` can change
        context = self._runtime.graph(
            graph, pool=self._pool, auto_dispatch_capture=True, capture_error_mode="thread_local"
        )
        try:
            with context:
                output = run()
        except RuntimeError:
            self._leave(graph, context)
            raise
        return NpuStep(graph, output)

    def _leave(self, graph: Any, context: Any) -> None:
        """torch_npu 2.13 leaves its mode and its stream entered when the begin or the end of a capture fails."""
        entered = _get_current_dispatch_mode()
        if entered is not None and entered is graph.graph_dispatch_mode:
            entered.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch has no types for it
        if self._runtime.current_stream() == context.capture_stream:
            context.stream_ctx.__exit__(None, None, None)

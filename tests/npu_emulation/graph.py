"""Graphs of the emulated device: the operators of a step, run again into the same memory."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.npu_emulation.tensors import EMULATOR, CaptureError, NpuTensor

_ATTENTION = "npu::npu_fused_infer_attention_score"


@dataclass(slots=True)
class _Record:
    func: Any
    args: Any
    kwargs: dict[str, Any]
    out: Any


class Stream:
    """Nothing runs beside anything here; what is current is known."""

    stack: ClassVar[list[Stream]] = []


class _OnStream:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        Stream.stack.append(self._stream)

    def __exit__(self, *error: object) -> None:
        assert Stream.stack.pop() is self._stream


class _Dispatching(TorchDispatchMode):
    """Changes nothing; what is left entered shows."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class NPUGraph:
    """As ``torch.npu.NPUGraph``: numbers of the host stay what they were, but for those that ``update`` replaces."""

    max_graphs: int | None = None
    """So many can be captured; then the resources of streams are used up."""
    num_captured = 0
    fails_at_end = False

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self.can_update = False
        self.graph_dispatch_mode = _Dispatching()

    def reset(self) -> None:
        """Gives back the resources of streams."""
        if self.records:
            NPUGraph.num_captured -= 1
        self.records.clear()

    def note(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        self.records.append(_Record(func, args, kwargs, out))

    def update(self, cpu_update_input: list[dict[str, Any]]) -> None:
        if not self.can_update:
            raise CaptureError("captured without auto_dispatch_capture")
        if EMULATOR.in_flight:
            raise CaptureError("an update may overtake the replay before it: nobody has waited for that one")
        calls = [record for record in self.records if record.func._schema.name == _ATTENTION]
        given = cpu_update_input * len(calls) if len(cpu_update_input) == 1 else cpu_update_input
        for record, values in zip(calls, given, strict=True):
            record.kwargs = {**record.kwargs, **{name: v for name, v in values.items() if name in record.kwargs}}

    def replay(self) -> None:
        EMULATOR.in_flight = True
        for record in self.records:
            new = EMULATOR.dispatch(record.func, record.args, record.kwargs, is_replay=True)
            for old, fresh in zip(pytree.tree_leaves(record.out), pytree.tree_leaves(new), strict=True):
                if isinstance(old, NpuTensor) and not _shares(old, fresh):
                    old.raw.copy_(fresh.raw)


def _shares(one: NpuTensor, other: NpuTensor) -> bool:
    return one.raw.untyped_storage().data_ptr() == other.raw.untyped_storage().data_ptr()


class graph:  # noqa: N801 - torch's name
    """As ``torch.npu.graph``."""

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        auto_dispatch_capture: bool = False,
    ) -> None:
        npu_graph.can_update = auto_dispatch_capture
        self._graph = npu_graph
        self.capture_stream = Stream()
        self.stream_ctx = _OnStream(self.capture_stream)

    def __enter__(self) -> None:
        self.stream_ctx.__enter__()
        self._graph.graph_dispatch_mode.__enter__()
        if NPUGraph.max_graphs is not None and NPUGraph.num_captured >= NPUGraph.max_graphs:
            raise RuntimeError("error code 207008: stream resources insufficient")
        NPUGraph.num_captured += 1
        EMULATOR.log = self._graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        EMULATOR.log = None
        if NPUGraph.fails_at_end:  # as the real one does, before it leaves its mode and its stream
            raise RuntimeError("error code 107027: the capture is invalid")
        self._graph.graph_dispatch_mode.__exit__(None, None, None)
        self.stream_ctx.__exit__(None, None, None)

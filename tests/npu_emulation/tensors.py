"""A device called npu made of CPU tensors: what may meet what, and when the host waits for the device.

An ``NpuTensor`` holds a CPU tensor and says that it lies on ``npu:0``. Every operator on one comes through ``Emulator.
dispatch``, which refuses what a real device would refuse, and notes what would make the host wait."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten

WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
    aten._unique2.default,
}
"""Their result is known to the host, or decides about sizes."""


class NpuError(RuntimeError):
    """What the emulated device refuses."""


class CaptureError(NpuError):
    """What must not be done while a graph is captured, or to a graph."""


class NpuTensor(torch.Tensor):
    """``raw`` on the device."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> NpuTensor:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device("npu", 0),
        )

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw
        EMULATOR.memory.hold(self)

    def __repr__(self) -> str:
        return f"NpuTensor({self.raw!r})"

    def numpy(self, *args: Any, **settings: Any) -> Any:
        raise TypeError("can't convert npu:0 device type tensor to numpy")

    def tolist(self) -> Any:
        EMULATOR.wait("tolist")
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return EMULATOR.dispatch(func, args, kwargs or {})


class Log(Protocol):
    """A graph that is being captured."""

    def note(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None: ...


class MemoryBook:
    """Bytes of the storages that live on the device."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.others = 0
        """Of other processes on the same card."""
        self.allocated = 0
        self.peak = 0
        self._holders: Counter[int] = Counter()

    @property
    def free(self) -> int:
        return self.total - self.others - self.allocated

    def hold(self, tensor: NpuTensor) -> None:
        storage = tensor.raw.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if not self._holders[place]:
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
        self._holders[place] += 1
        weakref.finalize(tensor, self._release, place, size)

    def _release(self, place: int, size: int) -> None:
        self._holders[place] -= 1
        if not self._holders[place]:
            self.allocated -= size


@dataclass(slots=True)
class Emulator:
    """The one device."""

    operators: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """References by the names of npu operators."""
    waits: list[str] = field(default_factory=list)
    """What made the host wait for the device."""
    uploads: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of tensors copied from the host."""
    kernels: set[str] = field(default_factory=set)
    """aten operators that were run and need a kernel of the device."""
    log: Log | None = None
    in_flight: bool = False
    """A replay that nobody has waited for yet."""
    memory: MemoryBook = field(default_factory=lambda: MemoryBook(2**30))

    def wait(self, what: str) -> None:
        if self.log is not None:
            raise CaptureError(f"{what}: the host waits for the device while a graph is captured")
        self.in_flight = False
        self.waits.append(what)

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any], *, is_replay: bool = False) -> Any:
        if func.namespace == "npu":
            out = self._npu(func, args, kwargs)
        else:
            if not is_replay and torch._C._dispatch_has_kernel_for_dispatch_key(
                func.name(), "CompositeImplicitAutograd"
            ):
                return func.decompose(*args, **kwargs)  # in inference mode it comes whole
            out = self._aten(func, args, kwargs)
        if self.log is not None and not is_replay:
            self.log.note(func, args, kwargs, out)
        return out

    def _npu(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        on_npu, on_host = _tensors(args, kwargs)
        name = func._schema.name.removeprefix("npu::")
        if on_host:
            raise NpuError(f"{name}: expected all tensors to be on the same device, found npu:0 and cpu")
        result = self.operators[name](*_raw(args), **_raw(kwargs))
        out = _wrapped(result, on_npu)
        return list(out) if self.log is not None and isinstance(out, tuple) else out

    def _aten(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        on_npu, on_host = _tensors(args, kwargs)
        to_host = False
        if func is aten._to_copy.default:
            device = kwargs.get("device")
            to_host = device is not None and torch.device(device).type == "cpu"
            if to_host:
                self.wait("copy to the host")
        elif func is aten.copy_.default:
            to_host = not isinstance(args[0], NpuTensor)
            is_waited_for = not (kwargs.get("non_blocking") or args[2:3] == (True,))
            self._copy(args[1], to_host=to_host, from_host=bool(on_host), is_waited_for=is_waited_for)
        elif func in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
            self._index(func, args[1])
        elif func in WAITING:
            self.wait(str(func))
        elif any(tensor.dim() for tensor in on_host):
            raise NpuError(f"{func}: expected all tensors to be on the same device, found npu:0 and cpu")
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        self._note_kernel(func)
        result = func(*_raw(args), **_raw(kwargs))
        if func is aten.copy_.default:
            return args[0]
        if to_host:
            return result
        _refuse_float64(func, pytree.tree_leaves(result))
        return _wrapped(result, on_npu)

    def _copy(self, source: Tensor, *, to_host: bool, from_host: bool, is_waited_for: bool) -> None:
        if to_host:
            self.wait("copy to the host")
        elif from_host:
            if self.log is not None:
                raise CaptureError("a copy from the host while a graph is captured")
            self.uploads.append(tuple(source.shape))
            if is_waited_for:
                self.waits.append("a copy from the host that is not non_blocking")

    def _index(self, func: Any, indices: Iterable[Tensor | None]) -> None:
        for index in indices:
            if index is not None and not isinstance(index, NpuTensor):
                self.wait(f"{func} with an index of the host")
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self.wait(f"{func} with a mask")

    def _note_kernel(self, func: Any) -> None:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeExplicitAutograd"):
            self.kernels.add(func._schema.name.removeprefix("aten::").removesuffix("_"))


def _refuse_float64(func: Any, leaves: Iterable[Any]) -> None:
    if any(isinstance(leaf, Tensor) and leaf.dtype == torch.float64 for leaf in leaves):
        raise NpuError(f"{func}: there is no float64 on the npu")


def _tensors(args: Any, kwargs: dict[str, Any]) -> tuple[list[NpuTensor], list[Tensor]]:
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    return (
        [leaf for leaf in leaves if isinstance(leaf, NpuTensor)],
        [leaf for leaf in leaves if not isinstance(leaf, NpuTensor)],
    )


def _raw(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.raw if isinstance(leaf, NpuTensor) else leaf, tree)


def _wrapped(result: Any, arguments: list[NpuTensor]) -> Any:
    """Tensors that were arguments (of in-place operators) stay the objects they are."""
    known = {id(tensor.raw): tensor for tensor in arguments}

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or isinstance(leaf, NpuTensor):
            return leaf
        return known.get(id(leaf)) if id(leaf) in known else NpuTensor(leaf)

    return pytree.tree_map(wrap, result)


def make(operator: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Factories: the only operators that come without a tensor of the device."""
    if not operator.name().startswith("aten::empty"):
        raise NotImplementedError(f"Could not run '{operator.name()}' on the npu with tensors of the host")
    if kwargs.get("dtype") == torch.float64:
        raise NpuError("there is no float64 on the npu")
    if kwargs.get("pin_memory"):
        raise NotImplementedError("the emulated device has no pinned memory")
    on_host = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs
    return NpuTensor(operator(*(torch.device("cpu") if isinstance(a, torch.device) else a for a in args), **on_host))


EMULATOR = Emulator()

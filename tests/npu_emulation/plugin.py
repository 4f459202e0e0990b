"""A pytest plugin whose process has an emulated npu: ``pytest -p tests.npu_emulation.plugin``.

A process has one private device for its life, so the tests of this one run by themselves."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
import torch
import transformers.modeling_utils  # before there is a torch_npu: it asks once, and would call what is not emulated
from torch.utils import backend_registration

from mindserve_engine.native import runner
from mindserve_engine.native.device import npu
from tests.npu_emulation import graph, references
from tests.npu_emulation import graph as graph_module
from tests.npu_emulation.manifest import SCHEMAS, VERSION
from tests.npu_emulation.tensors import EMULATOR, make

assert transformers.modeling_utils

_KEPT: list[torch.library.Library] = []
"""A library is undone with its object."""


class NpuModule(types.ModuleType):
    """``torch.npu``."""

    NPUGraph = graph.NPUGraph
    graph = graph.graph
    name = "Ascend910B3"
    utils = types.SimpleNamespace(get_cann_version=lambda module: f"of {module} 9.9")
    num_devices = 1
    current = 0

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return self.num_devices

    def current_device(self) -> int:
        return self.current

    def set_device(self, device: int) -> None:
        assert 0 <= device < self.num_devices
        self.current = device

    def synchronize(self, device: Any = None) -> None:
        EMULATOR.wait("synchronize")

    def empty_cache(self) -> None:
        """Nothing is kept."""

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return EMULATOR.memory.free, EMULATOR.memory.total

    def memory_reserved(self, device: Any = None) -> int:
        return EMULATOR.memory.allocated

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        return {"allocated_bytes.all.peak": EMULATOR.memory.peak}

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        EMULATOR.memory.peak = EMULATOR.memory.allocated

    def get_device_name(self) -> str:
        return self.name

    def current_stream(self) -> Any:
        return graph_module.Stream.stack[-1] if graph_module.Stream.stack else None

    def graph_pool_handle(self) -> Any:
        return (0, 0)

    def manual_seed_all(self, seed: int) -> None:
        """Nothing random is drawn on the device."""


MODULE = NpuModule("torch.npu")


def pytest_configure() -> None:
    backend_registration._setup_privateuseone_for_python_backend(rename="npu", backend_module=MODULE)
    EMULATOR.operators = dict(references.REFERENCES)
    factories = torch.library.Library("_", "IMPL")
    factories.fallback(make, "PrivateUse1")
    operators = torch.library.Library("npu", "DEF")
    for schema in SCHEMAS:
        operators.define(schema)
    _KEPT.extend((factories, operators))
    package = types.ModuleType("torch_npu")
    package.__spec__ = ModuleSpec("torch_npu", None)
    package.__version__ = f"{VERSION}+emulated"
    package.npu = MODULE
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        setattr(package, name, getattr(torch.ops.npu, name))
    sys.modules["torch_npu"] = package


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device, with nothing noted yet."""
    monkeypatch.setattr(npu, "host_buffer", lambda num_words: torch.empty(num_words, dtype=torch.int64))
    EMULATOR.waits.clear()
    EMULATOR.uploads.clear()
    EMULATOR.in_flight = False
    graph.NPUGraph.max_graphs, graph.NPUGraph.num_captured, graph.NPUGraph.fails_at_end = None, 0, False
    load = runner._load

    def starting(*given: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(references, "counts_blocks", True)
            return load(*given)

    monkeypatch.setattr(runner, "_load", starting)
    yield EMULATOR
    MODULE.current = 0
    EMULATOR.log = None
    EMULATOR.memory.others = 0


@pytest.fixture
def float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attention in float32 too, so that it can be held against the CPU to the last token."""
    monkeypatch.setattr(npu, "DTYPES", npu.DTYPES | {torch.float32})
    references.attention_dtypes.add(torch.float32)
    with contextlib.ExitStack() as stack:
        stack.callback(references.attention_dtypes.discard, torch.float32)
        yield

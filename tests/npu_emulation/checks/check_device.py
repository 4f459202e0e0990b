"""What the npu device asks of its machine, and what it does with the answers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device import npu
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec
from mindserve_engine.native.device.graphs import DecodeGraphs
from mindserve_engine.native.device.npu import NpuDevice
from mindserve_engine.native.device.npu_attention import NpuAttention
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.native.runner import NativeRunner
from mindserve_engine.options import EngineOptions
from tests import tiny_models
from tests.engine.drive import Driver, load, prompts_for
from tests.npu_emulation.graph import NPUGraph, Stream
from tests.npu_emulation.plugin import MODULE
from tests.npu_emulation.tensors import Emulator

SIZES = {"head_dim": 64}


@pytest.fixture
def device() -> NpuDevice:
    gc.collect()  # what former checks had on the device
    made = create_device(EngineOptions(model_path=Path(), device="npu"))
    assert isinstance(made, NpuDevice)
    return made


def refusal(**options: Any) -> str:
    with pytest.raises(EngineError) as caught:
        create_device(EngineOptions(model_path=Path(), device="npu", **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"block_size": 16}, "cacheBlockSize: 16"),
        ({"device_ids": [1]}, "npuDeviceIds: 1 is not among the 1 visible"),
        ({"max_batch_size": 5000}, "maxBatchSize: 5000"),
        ({"max_step_tokens": 65537}, "maxPrefillTokens: 65537 is above the 65536"),
        ({"deterministic": True}, "deterministic: "),
    ],
)
def check_what_it_cannot_do_is_refused_by_the_options_name(options: dict[str, Any], says: str) -> None:
    assert says in refusal(**options)


OLD_NAMES = ("310", "310B4", "310P3", "910", "910A", "910B", "910ProA", "910ProB", "910PremiumA")


@pytest.mark.parametrize("name", OLD_NAMES)
def check_old_hardware_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(MODULE, "name", f"Ascend{name}", raising=False)
    assert f"Ascend{name} is not supported" in refusal()


@pytest.mark.parametrize("name", ["910B1", "910B2C", "910B4-1", "910_9391", "910_9362"])
def check_the_series_a2_and_a3_are_not_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(MODULE, "name", f"Ascend{name}", raising=False)
    assert create_device(EngineOptions(model_path=Path(), device="npu")).name == "npu"


def check_no_visible_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "num_devices", 0, raising=False)
    assert "ASCEND_RT_VISIBLE_DEVICES" in refusal()


@pytest.mark.parametrize("text", ["0", "1.5", "much"])
def check_a_fraction_is_a_fraction(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NPU_MEMORY_FRACTION", text)
    assert f"NPU_MEMORY_FRACTION: '{text}'" in refusal()


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (AttentionShape(4, 2, 256), "heads of 256"),
        (AttentionShape(4, 2, 80), "heads of 80"),
        (AttentionShape(5, 2, 64), "5 query heads over 2"),
        (AttentionShape(128, 1, 64), "128 query heads over 1"),
        (AttentionShape(512, 512, 64), "512 query heads"),
    ],
)
def check_shapes_are_refused_by_name(device: NpuDevice, shape: AttentionShape, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        device.self_test(shape, torch.bfloat16, AttentionSpec(scale=1.0))


def check_models_it_cannot_run_are_refused_when_they_are_loaded(tmp_path: Path) -> None:
    for name, says in (("qwen3", "heads of 32"), ("gemma2", "runs on cpu and cuda alone")):
        path = tiny_models.build(name, tmp_path / name)
        with pytest.raises(EngineError, match=says):
            load(path, device="npu", dtype="bfloat16")
    path = tiny_models.build("llama", tmp_path / "llama", **SIZES)
    with pytest.raises(EngineError, match="dtype: float32 is not available on the npu"):
        load(path, device="npu")


def check_a_model_in_16_bits(tmp_path: Path) -> None:
    loaded = load(tiny_models.build("llama", tmp_path / "m", **SIZES), device="npu", dtype="bfloat16")
    driver = Driver(loaded)
    driver.add("one", prompts_for([20])[0], 8)
    assert len(driver.run()["one"]) == 8
    assert not driver.failures


def check_the_second_of_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "num_devices", 2)
    assert refusal(device_ids=[2]) == "npuDeviceIds: 2 is not among the 2 visible devices"
    made = create_device(EngineOptions(model_path=Path(), device="npu", device_ids=[1]))
    assert made.torch_device == torch.device("npu", 1)
    assert MODULE.current_device() == 1, "where torch_npu puts what names no device"


def check_a_sliding_window(device: NpuDevice) -> None:
    """The last of 200 keys of three values sees as many as the window holds, itself among them."""
    spec = AttentionSpec(scale=1e-9, window=3)
    [cache] = device.kv_cache(num_layers=1, num_blocks=2, block_size=128, kv_heads=1, head_dim=64, dtype=torch.float16)
    numbers = torch.arange(200.0).to(torch.float16)[:, None, None].expand(200, 1, 64).contiguous().to("npu")
    batch = device.upload(
        StepBatch(
            token_ids=[0] * 200,
            positions=list(range(200)),
            slots=list(range(200)),
            query_ends=[200],
            kv_lengths=[200],
            block_tables=[[0, 1]],
        )
    )
    device.write_kv(numbers, numbers, cache, batch)
    mixed = device.attention(numbers, numbers, numbers, cache, batch, spec)
    assert mixed[:, 0].tolist() == [0, 0.5, *range(1, 199)]


def check_memory_is_a_difference(device: NpuDevice, emulator: Emulator) -> None:
    """What others take of the card is not ours to count twice; what we take outside torch is."""
    kept = torch.empty(2**20, dtype=torch.uint8, device="npu")
    outside = 5 * 2**20

    def widest_step() -> int:
        torch.empty(7 * 2**20, dtype=torch.uint8, device="npu")
        emulator.memory.others += outside  # such as the workspaces of operators
        return 3 * 2**20

    @contextmanager
    def captured() -> Iterator[int]:
        graphs = torch.empty(3 * 2**20, dtype=torch.uint8, device="npu")
        yield 2**20
        assert graphs.numel()

    room = device.cache_room(widest_step, captured)
    held = emulator.memory.allocated + 7 * 2**20
    allowed = min(int(emulator.memory.total * 0.8), device._memory.free_at_start)
    assert (room.share, room.is_shared) == (1.0, False)
    assert room.free_bytes == pytest.approx(allowed - (held - 3 * 2**20) - 2 * 2**20 - outside, abs=2**16)
    assert kept.numel()


def check_a_crowded_card_gives_less(emulator: Emulator) -> None:
    emulator.memory.others = emulator.memory.total // 2
    device = create_device(EngineOptions(model_path=Path(), device="npu"))
    assert device.cache_room(lambda: 0, lambda: nullcontext(0)).free_bytes < emulator.memory.total // 2


def check_a_step_that_does_not_fit_is_told(device: NpuDevice) -> None:
    def widest_step() -> int:
        raise torch.OutOfMemoryError("NPU out of memory. Tried to allocate 3 GiB")

    with pytest.raises(EngineError, match="maxPrefillTokens: beside the weights there is no memory"):
        device.cache_room(widest_step, lambda: nullcontext(0))


def check_the_longest_chunk_and_all_graphs_are_tried_out(
    tmp_path: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the cache is sized; and what was captured for that is given back."""
    calls: list[tuple[list[int], list[int]]] = []
    captured: list[int] = []
    attend, room = NpuAttention.attend, NpuDevice.cache_room

    def attending(self: NpuAttention, query: Any, cache: Any, plan: Any, spec: Any) -> Any:
        calls.append((plan.host_query_ends, plan.host_kv_lengths))
        return attend(self, query, cache, plan, spec)

    def sizing(self: NpuDevice, widest_steps: Any, graphs: Any) -> Any:
        calls.clear()
        found = room(self, widest_steps, graphs)
        captured.append(NPUGraph.num_captured)
        return found

    monkeypatch.setattr(NpuAttention, "attend", attending)
    monkeypatch.setattr(NpuDevice, "cache_room", sizing)
    path = tiny_models.build("llama", tmp_path / "m", **SIZES)
    settings = {"max_batch_size": 3, "max_step_tokens": 300, "max_context": 500}
    loaded = load(path, device="npu", dtype="bfloat16", **settings)
    assert ([100, 200, 300], [100] * 3) in calls
    assert ([300], [500]) in calls, "the last chunk of the longest prompt"
    assert ([1, 2, 3], [500, 1, 1]) in calls
    assert ([1, 2, 3], [512, 1, 1]) in calls, "captured at the longest length"
    assert captured == [0]
    assert isinstance(loaded.runner, NativeRunner)
    assert loaded.runner.graphs is not None
    assert NPUGraph.num_captured == len(loaded.runner.graphs.sizes) == 3


def check_a_capture_that_fails_at_its_end_is_left(tmp_path: Path) -> None:
    NPUGraph.fails_at_end = True
    loaded = load(tiny_models.build("llama", tmp_path / "m", **SIZES), device="npu", dtype="bfloat16")
    assert isinstance(loaded.runner, NativeRunner)
    assert loaded.runner.graphs is None or loaded.runner.graphs.sizes == []
    assert Stream.stack == []
    assert _get_current_dispatch_mode() is None


def check_graphs_that_do_not_fit_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    NPUGraph.max_graphs = 2
    path = tiny_models.build("llama", tmp_path / "m", **SIZES)
    loaded = load(path, device="npu", dtype="bfloat16", max_batch_size=8)
    assert isinstance(loaded.runner, NativeRunner)
    assert loaded.runner.graphs is not None
    assert loaded.runner.graphs.sizes == [1, 2]
    assert "no graphs for decode batches of [4, 8]" in caplog.text
    assert Stream.stack == []
    assert _get_current_dispatch_mode() is None
    driver = Driver(loaded, max_batch_size=8)
    for number, prompt in enumerate(prompts_for([5] * 4)):
        driver.add(str(number), prompt, 5)
    assert all(len(tokens) == 5 for tokens in driver.run().values())


def check_no_graphs_with_blocking_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_LAUNCH_BLOCKING", "1")
    assert create_device(EngineOptions(model_path=Path(), device="npu")).graphs is None


def check_wrong_replays_are_found_before_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths of the captured step instead of this one's: what forgetting the update would do."""
    monkeypatch.setattr(NPUGraph, "update", lambda self, cpu_update_input: None)
    path = tiny_models.build("llama", tmp_path / "m", **SIZES)
    with pytest.raises(EngineError, match="npuGraph: a replayed decode step"):
        load(path, device="npu", dtype="bfloat16")


def check_replays_that_end_at_a_block_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths within a block are right: only longer sequences show it."""
    update = NPUGraph.update

    def updating(self: NPUGraph, cpu_update_input: list[dict[str, list[int]]]) -> None:
        [given] = cpu_update_input
        update(self, [{name: [min(length, 128) for length in lengths] for name, lengths in given.items()}])

    monkeypatch.setattr(NPUGraph, "update", updating)
    path = tiny_models.build("llama", tmp_path / "m", **SIZES)
    with pytest.raises(EngineError, match="npuGraph: a replayed decode step"):
        load(path, device="npu", dtype="bfloat16")


def check_replays_over_other_blocks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first column of the block table arrives."""
    fill = DecodeGraphs._fill

    def filling(self: Any, packing: Any, buffer: Any, batch: StepBatch) -> None:
        tables = [blocks[:1] * len(blocks) for blocks in batch.block_tables]
        fill(self, packing, buffer, replace(batch, block_tables=tables))

    monkeypatch.setattr(DecodeGraphs, "_fill", filling)
    path = tiny_models.build("llama", tmp_path / "m", **SIZES)
    with pytest.raises(EngineError, match="npuGraph: a replayed decode step"):
        load(path, device="npu", dtype="bfloat16")


def check_versions_are_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level("INFO"):
        create_device(EngineOptions(model_path=Path(), device="npu"))
    assert "torch_npu 2.13.0+emulated, CANN of CANN 9.9" in caplog.text

    def failing(module: str) -> str:
        raise RuntimeError("no version file")

    monkeypatch.setattr(MODULE.utils, "get_cann_version", failing)
    with caplog.at_level("INFO"):
        create_device(EngineOptions(model_path=Path(), device="npu"))
    assert "CANN unknown (RuntimeError: no version file)" in caplog.text


def check_a_replay_nobody_waited_for_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails after its replay must not be overtaken by the next."""
    loaded = load(tiny_models.build("llama", tmp_path / "m", **SIZES), device="npu", dtype="bfloat16")
    runner: Any = loaded.runner
    driver = Driver(loaded)
    driver.add("one", prompts_for([5])[0], 8)
    driver.step()
    sample = runner._sampler.sample

    def failing(logits: Any, rows: Any) -> Any:
        monkeypatch.setattr(runner._sampler, "sample", sample)
        raise RuntimeError("no luck")

    monkeypatch.setattr(runner._sampler, "sample", failing)
    driver.step()
    assert driver.failures == {"one": "its computation failed"} or len(driver.run()["one"]) == 8
    driver.add("two", prompts_for([5])[0], 8)
    assert len(driver.run()["two"]) == 8


def check_the_fraction_of_mindie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPU_MEMORY_FRACTION", raising=False)
    assert npu.memory_fraction() == 0.8
    monkeypatch.setenv("NPU_MEMORY_FRACTION", "0.5")
    assert npu.memory_fraction() == 0.5

"""Loading: what comes out of a good model, and the one clear line for a bad one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mindserve_engine.interface import EngineError
from mindserve_engine.native import runner
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.runner import LoadedModel, load_runner
from mindserve_engine.options import EngineOptions
from tests import tiny_gguf, tiny_models


def load(path: Path, **changes: Any) -> LoadedModel:
    settings = {"dtype": "float32", "kv_memory_gb": 0.01, "block_size": 16, "num_threads": 1, **changes}
    return load_runner(EngineOptions(model_path=path, **settings), lambda _what, _share: None)


def refusal(path: Path, **changes: Any) -> str:
    with pytest.raises(EngineError) as caught:
        load(path, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_models.build("llama", tmp_path / "model")


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_info(folder: Path) -> None:
    loaded = load(folder, max_context=100, max_prompt_tokens=60)
    info = loaded.info
    assert (info.model_type, info.vocab_size, info.device, info.weights) == ("llama", 300, "cpu", "float32")
    assert (info.max_context, info.max_prompt_tokens) == (100, 60)
    assert (info.block_size, info.num_blocks) == (16, loaded.runner.num_blocks)
    assert info.eos_token_ids == (tiny_models.IM_END,)
    assert info.default_top_k is None


def test_context_is_the_models_unless_less_is_asked_for(folder: Path) -> None:
    assert load(folder).info.max_context == 512
    assert load(folder).info.max_prompt_tokens == 511
    assert load(folder, max_context=4096).info.max_context == 512


def test_progress_rises_to_one(folder: Path) -> None:
    told: list[tuple[str, float]] = []
    load_runner(
        EngineOptions(model_path=folder, kv_memory_gb=0.01, num_threads=1),
        lambda what, share: told.append((what, share)),
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len({share for what, share in told if what == "loading weights"}) >= 3


@pytest.mark.parametrize(("dtype", "held"), [("auto", "bfloat16"), ("float16", "float16"), ("bfloat16", "bfloat16")])
def test_dtypes_of_a_folder(folder: Path, dtype: str, held: str) -> None:
    assert load(folder, dtype=dtype).info.weights == held


@pytest.mark.parametrize(("dtype", "held"), [("auto", "int4"), ("int4", "int4"), ("float32", "float32")])
def test_dtypes_of_a_gguf_file(tmp_path: Path, dtype: str, held: str) -> None:
    assert load(tiny_gguf.write("qwen3", tmp_path), dtype=dtype).info.weights == held


def test_an_empty_step_writes_but_samples_nothing(folder: Path) -> None:
    batch = StepBatch(
        token_ids=[1, 2], positions=[0, 1], slots=[0, 1], query_ends=[2], kv_lengths=[2], block_tables=[[0]]
    )
    assert load(folder).runner.run(batch) == []


def test_loading_leaves_a_thread_to_the_server(folder: Path) -> None:
    """And gives it back: also when the model cannot be loaded."""
    before = torch.get_num_threads()
    seen: list[int] = []

    def look(_what: str, _share: float) -> None:
        seen.append(torch.get_num_threads())

    try:
        load_runner(EngineOptions(model_path=folder, kv_memory_gb=0.01, num_threads=3), look)
        assert (seen[-1], torch.get_num_threads()) == (2, 3)
        (folder / "model.safetensors").unlink()
        assert "model.safetensors" in refusal(folder, num_threads=3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_lean_gguf_model_needs_no_model_classes_of_transformers(tmp_path: Path) -> None:
    """Their import would double the time to start."""
    path = tiny_gguf.write("llama", tmp_path)
    script = f"""
import sys
from pathlib import Path
from mindserve_engine.native.runner import load_runner
from mindserve_engine.options import EngineOptions
load_runner(EngineOptions(model_path=Path({str(path)!r}), kv_memory_gb=0.01), lambda what, share: None)
print("accelerate" in sys.modules, "transformers.modeling_utils" in sys.modules, "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_packages_of_other_devices_are_hidden_before_the_config_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's own code may be imported for it, and transformers with all that it finds."""
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    seen: list[Any] = []
    read = runner.read_facts

    def reading(path: Path, **options: Any) -> Any:
        seen.append(sys.modules.get("torch_npu", "not hidden"))
        return read(path, **options)

    monkeypatch.setattr(runner, "read_facts", reading)
    load(folder)
    assert seen == [None]


def test_wrong_options(folder: Path) -> None:
    assert "dtype: 'int3'" in refusal(folder, dtype="int3")
    assert "dtype int4 needs a GGUF file" in refusal(folder, dtype="int4")
    assert "device: 'tpu'" in refusal(folder, device="tpu")
    assert "cacheBlockSize: 17" in refusal(folder, block_size=17)
    assert "cacheBlockSize: 256" in refusal(folder, block_size=256)
    assert "npuMemSize" in refusal(folder, kv_memory_gb=0.000001)


def test_truncated_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "not a readable safetensors file" in refusal(folder)


def test_missing_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert "no tensor 'model.layers.2.mlp.up_proj.weight'" in refusal(folder)


def test_config_and_weights_disagree(folder: Path) -> None:
    rewrite(folder / "config.json", intermediate_size=128)
    assert "gate_proj.weight' has shape [96, 64], the model's config needs [128, 64]" in refusal(folder)


def test_nonsense_in_the_config(folder: Path) -> None:
    rewrite(folder / "config.json", num_attention_heads="many")
    assert str(folder) in refusal(folder)


def test_generic_model_with_missing_tensor(tmp_path: Path) -> None:
    folder = tiny_models.build("phi", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    lost = next(name for name in tensors if name.endswith("fc1.weight"))
    del tensors[lost]
    save_file(tensors, folder / "model.safetensors")
    assert lost in refusal(folder)


@pytest.mark.parametrize("name", tiny_models.UNSUPPORTED)
def test_unsupported_architectures(tmp_path: Path, name: str) -> None:
    assert f"architecture '{name}' is not supported: " in refusal(tiny_models.build(name, tmp_path))


def test_generic_model_that_computes_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at load is a real one: a model whose own attention does more than ours is found out."""
    folder = tiny_models.build("phi", tmp_path)
    from transformers.models.phi import modeling_phi

    original = modeling_phi.eager_attention_forward

    def biased(module: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(module, query * 1.5, *args, **kwargs)

    monkeypatch.setattr(modeling_phi, "eager_attention_forward", biased)
    assert "its results are off by" in refusal(folder)

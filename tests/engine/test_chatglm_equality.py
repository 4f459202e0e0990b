"""ChatGLM models on the lean decoder equal the architecture written out, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import save_file

from mindserve_engine.native.runner import LoadedModel
from tests import tiny_chatglm
from tests.engine.drive import Driver, assert_continues, generate, load, random_prompts
from tests.tiny_chatglm import Reference

LENGTHS = (1, 2, 15, 16, 17, 33, 70, 110)
NUM_TOKENS = 16
VOCAB_SIZE = tiny_chatglm.CONFIG["padded_vocab_size"]


def both(folder: Path, **changes: object) -> tuple[LoadedModel, Reference]:
    tiny_chatglm.build(folder, **changes)
    return load(folder, block_size=16), Reference(folder)


def expected_of(reference: Reference, prompts: list[list[int]]) -> list[list[int]]:
    told = [reference.greedy(prompt, NUM_TOKENS) for prompt in prompts]
    assert sum(map(len, told)) > 0.8 * NUM_TOKENS * len(prompts), "the reference is undecided too often"
    assert len({token for tokens in told for token in tokens}) > 10, "the reference says nothing"
    return told


@pytest.mark.parametrize("name", tiny_chatglm.VARIANTS)
def test_mixed_batch(tmp_path: Path, name: str) -> None:
    ours, reference = both(tmp_path, **tiny_chatglm.VARIANTS[name])
    prompts = random_prompts(LENGTHS, vocab_size=VOCAB_SIZE)
    assert_continues(generate(ours, prompts, NUM_TOKENS), expected_of(reference, prompts))


@pytest.mark.parametrize("max_step_tokens", [7, 32])
def test_chunked_prefill_of_shards(tmp_path: Path, max_step_tokens: int) -> None:
    ours, reference = both(tmp_path, num_shards=3)
    prompts = random_prompts((3, 90, 50, 120), vocab_size=VOCAB_SIZE, seed=2)
    expected = expected_of(reference, prompts)
    assert_continues(generate(ours, prompts, NUM_TOKENS, max_step_tokens=max_step_tokens), expected)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "")
    ours, reference = both(tmp_path)
    prompts = random_prompts(LENGTHS, vocab_size=VOCAB_SIZE, seed=4)
    assert_continues(generate(ours, prompts, NUM_TOKENS), expected_of(reference, prompts))


@pytest.mark.parametrize("name", ["chatglm2-32k", "chatglm3-32k"])
def test_far_positions_of_the_32k_variants(tmp_path: Path, name: str) -> None:
    """Positions beyond a thousand: a rotary base that is wrong by a little shows here."""
    ours, reference = both(tmp_path, **tiny_chatglm.VARIANTS[name])
    assert ours.info.max_context == 4096
    [prompt] = random_prompts((1500,), vocab_size=VOCAB_SIZE, seed=6)
    assert_continues(generate(ours, [prompt], 4), [reference.greedy(prompt, 4)])


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("seq_idx = torch.arange(seq_len, dtype=dtype) / self.rope_ratio", "chatglm2-32k"),
        ("base = base * self.rope_ratio", "chatglm3-32k"),
    ],
)
def test_the_code_of_the_folder_tells_what_the_ratio_means(tmp_path: Path, line: str, name: str) -> None:
    """It is read, not run, and its word counts more than the name."""
    other = {"chatglm2-32k": "THUDM/chatglm3-6b-32k", "chatglm3-32k": "THUDM/chatglm2-6b-32k"}[name]
    config = {**tiny_chatglm.VARIANTS[name], "_name_or_path": other}
    folder = tiny_chatglm.build(tmp_path / "model", **config)
    (folder / "modeling_chatglm.py").write_text(f"raise SystemExit\n{line}\n")
    reference = Reference(folder)
    reference.config = {**tiny_chatglm.CONFIG, **tiny_chatglm.VARIANTS[name]}
    prompts = random_prompts((300,), vocab_size=VOCAB_SIZE, seed=8)
    assert_continues(generate(load(folder, block_size=16), prompts, 4), [reference.greedy(p, 4) for p in prompts])


def test_end_of_turn_tokens(tmp_path: Path) -> None:
    ours, _ = both(tmp_path)
    size = tiny_chatglm.ReferenceTokenizer(tmp_path).special
    assert ours.info.model_type == "chatglm"
    assert ours.info.eos_token_ids == (2, size["<|user|>"], size["<|observation|>"])


def test_adapter_of_fused_layers(tmp_path: Path) -> None:
    """PEFT's format, trained on the layers as the files have them; the reference gets the sums as its weights."""
    folder = tiny_chatglm.build(tmp_path / "model")
    reference = Reference(folder)
    generator = torch.Generator().manual_seed(9)
    factors = {}
    for name in ("self_attention.query_key_value", "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"):
        key = f"transformer.encoder.layers.1.{name}"
        weight = reference.weights[f"{key}.weight"]
        down, up = (
            torch.randn(*shape, generator=generator) * 0.3 for shape in ((2, weight.shape[1]), (len(weight), 2))
        )
        factors |= {f"base_model.model.{key}.lora_A.weight": down, f"base_model.model.{key}.lora_B.weight": up}
        reference.weights[f"{key}.weight"] = weight + 2.0 * up @ down
    adapter = tmp_path / "adapter"
    LoraConfig(r=2, lora_alpha=4, target_modules=["query_key_value"]).save_pretrained(adapter)
    save_file(factors, adapter / "adapter_model.safetensors")
    ours = load(folder, block_size=16, adapters={"style": adapter})
    prompts = random_prompts((5, 40), vocab_size=VOCAB_SIZE, seed=7)
    driver = Driver(ours)
    for number, prompt in enumerate(prompts):
        driver.add(str(number), prompt, NUM_TOKENS, adapter="style")
    tokens = driver.run()
    assert_continues([tokens["0"], tokens["1"]], expected_of(reference, prompts))

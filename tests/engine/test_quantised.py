"""4-bit and 16-bit engines stay close to the exact one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.runner import LoadedModel
from tests import tiny_gguf, tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import generate, load, random_prompts


def last_logits(loaded: LoadedModel, prompts: list[list[int]]) -> Tensor:
    """[prompts, vocabulary] after each prompt, all in one step: the sampler left out."""
    runner, batch = loaded.runner, StepBatch()
    per_prompt = -(-max(map(len, prompts)) // runner.block_size)
    for number, prompt in enumerate(prompts):
        first = number * per_prompt
        batch.token_ids += prompt
        batch.positions += range(len(prompt))
        batch.slots += range(first * runner.block_size, first * runner.block_size + len(prompt))
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(len(prompt))
        batch.block_tables.append(list(range(first, first + per_prompt)))
    with torch.inference_mode():
        uploaded = runner._device.upload(batch)  # type: ignore[attr-defined]
        uploaded.last_rows = torch.tensor(batch.query_ends) - 1
        logits: Tensor = runner._model.logits(uploaded, runner._caches)  # type: ignore[attr-defined]
    return logits.float()


def relative_error(actual: Tensor, exact: Tensor) -> float:
    return float(((actual - exact).norm(dim=-1) / exact.norm(dim=-1)).max())


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("lengths", [(3,), (20, 30)], ids=["int4 kernel", "wide copies"])
def test_tiny_models_in_four_bits(tmp_path: Path, name: str, lengths: tuple[int, ...]) -> None:
    """Both engines read the same 4-bit file; only bfloat16 rounding and the 8-bit head are between them."""
    path = tiny_gguf.write(name, tmp_path)
    prompts = random_prompts(lengths, vocab_size=300)
    exact = last_logits(load(path, dtype="float32"), prompts)
    assert relative_error(last_logits(load(path, dtype="int4"), prompts), exact) < 0.12


@pytest.mark.parametrize("dtype", ["int4", "bfloat16", "float16"])
def test_default_model(default_pair: Pair, dtype: str) -> None:
    prompts = random_prompts((5, 9, 12, 40, 64), vocab_size=default_pair.ours.info.vocab_size)
    exact = last_logits(default_pair.ours, prompts)
    narrow = load(default_pair.path, dtype=dtype, kv_memory_gb=0.5, block_size=32, num_threads=None)
    singles = torch.cat([last_logits(narrow, [prompt]) for prompt in prompts])
    together = last_logits(narrow, prompts)
    for actual in (singles, together):
        assert relative_error(actual, exact) < 0.05
        divergence = torch.nn.functional.kl_div(
            actual.log_softmax(-1), exact.log_softmax(-1), log_target=True, reduction="batchmean"
        )
        assert float(divergence) < 0.05


@pytest.mark.parametrize("dtype", ["float32", "int4", "float16"])
def test_default_model_answers(default_pair: Pair, dtype: str) -> None:
    """In bfloat16 the two best first tokens are next to each other: rounding must not decide between them."""
    tokenizer = load_tokenizer(default_pair.path)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.render_chat(question, tools=None, template_kwargs={})
    loaded = default_pair.ours
    if dtype != "float32":
        loaded = load(default_pair.path, dtype=dtype, kv_memory_gb=0.5, block_size=32, num_threads=None)
    answer = b"".join(tokenizer.token_bytes(token) for token in generate(loaded, [prompt], 8)[0])
    assert answer == b"The capital of France is Paris.<|im_end|>"


@pytest.mark.parametrize("name", ["llama", "phi"])
def test_float16_generates_what_float32_does(tmp_path: Path, name: str) -> None:
    """10 bits of fraction are enough for the tiny models' well-separated tokens."""
    path = tiny_models.build(name, tmp_path)
    prompts = random_prompts((3, 20, 40), vocab_size=tiny_models.VOCAB_SIZE)
    exact = generate(load(path, block_size=16), prompts, 6)
    assert generate(load(path, dtype="float16", block_size=16), prompts, 6) == exact

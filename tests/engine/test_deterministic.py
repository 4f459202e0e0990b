"""In the deterministic mode a request gives the same tokens and log-probabilities, to the bit, in any company."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device import cpu_create
from mindserve_engine.native.runner import LoadedModel
from mindserve_engine.types import SamplingParams, SequenceEvent
from tests import tiny_adapters, tiny_gguf, tiny_models
from tests.engine.drive import Driver, load, small_pool

Wish = tuple[list[int], int, dict[str, Any]]
"""Prompt, number of tokens, the rest."""


def wishes(count: int, vocab_size: int, adapters: tuple[str, ...]) -> list[Wish]:
    """Requests of every kind; a third of them shares the start of its prompt with others."""
    dice = random.Random(5)
    shared = [dice.randrange(vocab_size) for _ in range(70)]
    found: list[Wish] = []
    for number in range(count):
        prompt = [dice.randrange(vocab_size) for _ in range(dice.choice([1, 2, 15, 16, 17, 60, 130]))]
        if number % 3 == 0:
            prompt = shared[: dice.choice([16, 40, 70])] + prompt[:20]
        sampling = SamplingParams(
            temperature=dice.choice([0.0, 0.5, 1.0, 1.7]),
            top_k=dice.choice([0, 1, 7, 50]),
            top_p=dice.choice([0.3, 0.9, 1.0]),
            seed=number,
            repetition_penalty=dice.choice([1.0, 1.2]),
            presence_penalty=dice.choice([0.0, 0.4]),
            frequency_penalty=dice.choice([0.0, -0.3]),
        )
        rest: dict[str, Any] = {"sampling": sampling, "num_logprobs": dice.choice([0, 3])}
        if number % 5 == 0:
            rest["num_sequences"] = dice.choice([2, 3])
        if adapters:
            rest["adapter"] = dice.choice([None, *adapters])
        found.append((prompt, dice.choice([1, 5, 12]), rest))
    return found


def told(events: list[SequenceEvent]) -> dict[int, list[Any]]:
    """Tokens and log-probabilities of each sequence of a request."""
    found: dict[int, list[Any]] = {}
    for event in events:
        found.setdefault(event.index, []).extend([*zip(event.token_ids, event.logprobs, strict=True)])
    return found


def alone(loaded: LoadedModel, wish: Wish) -> dict[int, list[Any]]:
    driver = Driver(loaded, prefix_cache=False)
    prompt, num_tokens, rest = wish
    driver.add("only", prompt, num_tokens, **rest)
    driver.run()
    return told(driver.events["only"])


def check(loaded: LoadedModel, count: int, *, num_blocks: int) -> None:
    """All at once, 64 of them running, with prefix hits, in small chunks, in so few blocks that some are preempted."""
    asked = wishes(count, tiny_models.VOCAB_SIZE, loaded.info.adapters)
    expected = [alone(loaded, wish) for wish in asked]
    with small_pool(loaded, num_blocks) as small:
        driver = Driver(small, max_batch_size=64, max_step_tokens=90)
        for number, (prompt, num_tokens, rest) in enumerate(asked):
            driver.add(str(number), prompt, num_tokens, **rest)
        driver.run()
    assert driver.loop.stats().num_preemptions_total > 0
    assert any(driver.num_cached.values())
    for number, one in enumerate(expected):
        assert told(driver.events[str(number)]) == one, asked[number]


SETTINGS: dict[str, Any] = {"block_size": 16, "deterministic": True, "num_threads": 2, "max_batch_size": 64}


def test_200_requests_with_4_bit_weights(tmp_path: Path) -> None:
    check(load(tiny_gguf.write("llama", tmp_path), dtype="auto", **SETTINGS), 200, num_blocks=45)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_weights_that_are_not_quantised(tmp_path: Path, name: str, dtype: str) -> None:
    check(load(tiny_models.build(name, tmp_path), dtype=dtype, **SETTINGS), 60, num_blocks=24)


def test_adapters(tmp_path: Path) -> None:
    path = tiny_models.build("llama", tmp_path / "base")
    folders = {name: tmp_path / name for name in ("one", "two")}
    for seed, folder in enumerate(folders.values()):
        folder.mkdir()
        tiny_adapters.write(path, folder, seed=seed)
    check(load(path, adapters=folders, **SETTINGS), 60, num_blocks=24)


def test_what_cannot_promise_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generic = tiny_models.build("gemma2", tmp_path / "generic")
    with pytest.raises(EngineError, match="deterministic is not available for architecture 'gemma2'"):
        load(generic, **SETTINGS)
    monkeypatch.setattr(cpu_create, "load_library", lambda: None)
    with pytest.raises(EngineError, match="deterministic: needs a C"):
        load(tiny_models.build("llama", tmp_path / "lean"), **SETTINGS)

"""How well a model of ours foretells a text: to compare ways of holding the same weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from mindserve.chat.gguf_tokenizer import load_gguf_tokenizer
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.runner import LoadedModel

PROSE: Final = Path(__file__).with_name("prose.txt")
"""Written for this purpose: less than 2,000 tokens of any common vocabulary."""
PROMPT_ROWS: Final = 256
"""As a prompt is read: many tokens in a step."""
ANSWER_ROWS: Final = 4
"""So few that the kernels for quantised weights do the work, as they do when an answer is written."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a model said of each token of a text but the first."""

    surprise: Tensor
    """[n - 1] negative log-probability of the token that came, in nats."""
    best: Tensor
    """[n - 1] the likeliest token."""

    @property
    def perplexity(self) -> float:
        return math.exp(float(self.surprise.double().mean()))

    def ratio(self, exact: Foretold) -> float:
        """1.0: as well as ``exact`` does; above: worse."""
        return self.perplexity / exact.perplexity

    def agreement(self, exact: Foretold) -> float:
        """The share of positions at which both would go on with the same token, 0 to 1."""
        return float((self.best == exact.best).double().mean())


def tokens_of(path: Path, text: str) -> list[int]:
    """``text`` as the tokenizer of a GGUF file cuts it."""
    ids: list[int] = load_gguf_tokenizer(path)(text)["input_ids"]
    return ids


def foretell(loaded: LoadedModel, tokens: list[int], *, rows: int) -> Foretold:
    """Run ``tokens`` through the model, ``rows`` of them in a step. They must fit its KV memory and its context."""
    if len(tokens) > loaded.info.max_context:
        raise ValueError(f"{len(tokens)} tokens do not fit into a context of {loaded.info.max_context}")
    surprise, best = [], []
    for start in range(0, len(tokens) - 1, rows):
        step = tokens[start : min(start + rows, len(tokens) - 1)]
        logits = all_logits(loaded, one_sequence(step, start, loaded.runner.block_size))
        following = torch.tensor(tokens[start + 1 : start + 1 + len(step)])
        surprise.append(torch.nn.functional.cross_entropy(logits, following, reduction="none"))
        best.append(logits.argmax(-1))
    return Foretold(torch.cat(surprise), torch.cat(best))


def one_sequence(token_ids: list[int], start: int, block_size: int) -> StepBatch:
    """The next tokens of a sequence that has ``start`` of them in the first blocks of the cache."""
    end = start + len(token_ids)
    return StepBatch(
        token_ids=list(token_ids),
        positions=list(range(start, end)),
        slots=list(range(start, end)),
        query_ends=[len(token_ids)],
        kv_lengths=[end],
        block_tables=[list(range(-(-end // block_size)))],
    )


def all_logits(loaded: LoadedModel, batch: StepBatch, rows: list[int] | None = None) -> Tensor:
    """[rows, vocabulary] float32 of all rows of a step, or of those named: the sampler left out."""
    runner = loaded.runner
    with torch.inference_mode():
        uploaded = runner._device.upload(batch)  # type: ignore[attr-defined]
        uploaded.last_rows = torch.tensor(range(len(batch.token_ids)) if rows is None else rows)
        logits: Tensor = runner._model.logits(uploaded, runner._caches)  # type: ignore[attr-defined]
    return logits.float()

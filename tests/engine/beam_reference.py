"""What transformers' own beam search finds."""

from __future__ import annotations

from typing import Any

import torch


def beams(
    model: Any, prompt: list[int], width: int, *, eos: list[int] | None, pad: int, num_tokens: int, **settings: Any
) -> list[tuple[list[int], float]]:
    """Tokens, up to the first that ends a sequence, and score of each hypothesis, best first."""
    ids = torch.tensor([prompt])
    model.generation_config.eos_token_id = eos
    model.generation_config.pad_token_id = pad
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=num_tokens,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    found = []
    for tokens, score in zip(
        output.sequences[:, len(prompt) :].tolist(), output.sequences_scores.tolist(), strict=True
    ):
        ends = [place for place, token in enumerate(tokens) if token in (eos or [])]
        found.append((tokens[: ends[0] + 1] if ends else tokens, score))
    return found

"""Models that see or hear, twice, and what they are asked in the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mindserve_engine.media.positions import prompt_positions
from mindserve_engine.native.runner import LoadedModel
from tests import media_prompts as given
from tests import tiny_media_models as tiny
from tests.engine import drive
from tests.engine.drive import CLOSEST, Driver
from tests.media_prompts import Prompt, film, item, picture, prompt, sound

NUM_TOKENS = 16
SEEING = ("qwen2_vl", "qwen2_5_vl")


@dataclass
class MediaPair:
    """One model twice, and what to ask of it."""

    name: str
    path: Path
    ours: LoadedModel
    theirs: Any
    prompts: list[Prompt]
    expected: list[list[int]]


def make_pair(name: str, path: Path, **text: Any) -> MediaPair:
    """``text`` as for ``tiny.build``."""
    tiny.build(name, path, **text)
    theirs = tiny.load(path)
    ours = drive.load(path, block_size=16)
    prompts = hearing_prompts(ours) if name == "qwen2_audio" else seeing_prompts(ours)
    return MediaPair(name, path, ours, theirs, prompts, [continuation(name, theirs, one) for one in prompts])


PairOf = Callable[[str], MediaPair]


def seeing_prompts(loaded: LoadedModel) -> list[Prompt]:
    model = loaded.info.media
    assert model is not None
    image, other = item(picture(3, 5), model), item(picture(7, 7, seed=1), model)
    short, odd, long = (
        item(film(frames, rows, columns, seed=frames), model, seconds_per_frame=seconds)
        for frames, rows, columns, seconds in ((4, 3, 4, 0.5), (5, 2, 3, 0.31), (24, 2, 2, 1.0))
    )
    return [
        prompt(model, "Tell me about the sea."),
        prompt(model, "What is this? ", image, " Answer in a word."),
        prompt(model, "Compare ", image, " with ", other, "."),
        prompt(model, image, image, "Are they the same?"),
        prompt(model, "x" * 40),
        prompt(model, "And this film? ", short, " Who is in it?"),
        prompt(model, other, odd, short, "All of them."),
        prompt(model, "A long one: ", long, " What happens at the end?"),
    ]


def hearing_prompts(loaded: LoadedModel) -> list[Prompt]:
    model = loaded.info.media
    assert model is not None
    whole, half, tiny_bit = (item(sound(samples, seed=samples), model) for samples in (16000, 8111, 480))
    assert (whole.num_tokens, half.num_tokens, tiny_bit.num_tokens) == (25, 13, 1)
    return [
        prompt(model, "Tell me about the sea."),
        prompt(model, "What is said here? ", whole, " Answer in a word."),
        prompt(model, "Compare ", half, " with ", whole, "."),
        prompt(model, "y" * 40),
        prompt(model, half, half, tiny_bit, "Go on."),
    ]


def continuation(name: str, model: Any, asked: Prompt, num_tokens: int = NUM_TOKENS, **more: Any) -> list[int]:
    """As far as transformers is sure of it; positions behind videos are those of the rule that is asked for."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    arguments = {**given.arguments(name, asked), **more}
    if name in SEEING and "position_ids" not in arguments:
        arguments["position_ids"] = positions(name, asked)
    output = model.generate(
        **arguments, do_sample=False, max_new_tokens=num_tokens, output_logits=True, return_dict_in_generate=True
    )
    best = torch.cat(output.logits).topk(2).values
    tied = torch.nonzero(best[:, 0] - best[:, 1] < CLOSEST)[:, 0].tolist()
    tokens: list[int] = output.sequences[0, len(asked.token_ids) :].tolist()
    return tokens[: tied[0]] if tied else tokens


def positions(name: str, asked: Prompt, *, is_by_side: bool = False) -> torch.Tensor:
    """[3, 1, n]."""
    rule = given.rule(name, is_by_side=is_by_side)
    return torch.from_numpy(prompt_positions(len(asked.token_ids), asked.media, rule))[:, None]


def run(driver: Driver, prompts: list[Prompt], prefix: str = "", **fields: Any) -> list[list[int]]:
    for number, one in enumerate(prompts):
        driver.add(f"{prefix}{number}", one.token_ids, NUM_TOKENS, media=one.media, **fields)
    tokens = driver.run()
    return [tokens[f"{prefix}{number}"] for number in range(len(prompts))]


@contextmanager
def counting(loaded: LoadedModel) -> Iterator[list[bytes]]:
    """The digests of the items that are encoded."""
    encoder, begun = loaded.runner.encoder, []
    assert encoder is not None
    begin = encoder.begin

    def noted(one: Any) -> None:
        begun.append(one.digest)
        begin(one)

    encoder.begin = noted  # type: ignore[method-assign]
    try:
        yield begun
    finally:
        del encoder.begin

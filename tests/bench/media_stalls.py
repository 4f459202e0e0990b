"""How long running answers pause while a large image is encoded: ``python -m tests.bench.media_stalls --folder DIR``.

The model has the widths of Qwen2-VL-2B, random weights and few layers: pieces of the tower cost what they cost there, a
step of decodes a fifth of it, which is the harder case. ``--build`` writes it into the folder; without it the model is
loaded and measured, in this process. All figures are of one run, and only their ratios mean anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.runner import load_runner
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import GenerationRequest, SamplingParams
from tests import tiny_media_models as tiny
from tests.media_prompts import Prompt, item, picture, prompt

SIDE: Final = 35
"""Tokens on a side of the image unless told: 980 x 980 pixels, 4,900 patches. 64 makes the largest."""
NUM_QUIET: Final = 40
"""Steps of decodes alone."""
LIMIT: Final = 3.0
"""The 99th percentile by the median."""
_TEXT: Final = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2}
_VISION: Final = {"embed_dim": 1280, "num_heads": 16, "hidden_size": 1536}


def build(folder: Path, *, text_layers: int, vision_layers: int) -> None:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    text = {**tiny._TEXT, **_TEXT, "num_hidden_layers": text_layers, "rope_parameters": rope}
    config = Qwen2VLConfig(**tiny._parts(text, {**_VISION, "depth": vision_layers}))
    config.dtype = torch.bfloat16
    torch.set_default_dtype(torch.bfloat16)
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 4096}
    Qwen2VLImageProcessorPil(size=size).save_pretrained(folder)


def intervals(loop: EngineLoop, request_id: str, until: Callable[[list[Any]], bool]) -> Iterator[float]:
    """Seconds between the tokens of a request, from one that comes first, until the events of a step end it."""
    last: float | None = None
    while True:
        events = loop.step()
        now = time.perf_counter()
        if any(event.request_id == request_id and event.token_ids for event in events):
            if last is not None:
                yield now - last
            last = now
        if until(events):
            return


def measure(folder: Path, num_streams: int, side: int) -> int:
    options = EngineOptions(model_path=folder, dtype="float32", kv_memory_gb=0.5, prefix_cache=False)
    loaded = load_runner(options, lambda what, share: None)
    model = loaded.info.media
    assert model is not None
    loop = EngineLoop(loaded.runner, loaded.info, options)
    for number in range(num_streams):
        words = prompt(model, f"{number}: Tell me about the sea, and about all that swims in it.")
        loop.add(_request(f"text {number}", words), time.monotonic())
    counted = iter(range(NUM_QUIET + num_streams + 8))
    quiet = list(intervals(loop, "text 0", lambda _: next(counted, None) is None))[-NUM_QUIET:]
    asked = prompt(model, "Look: ", item(picture(side, side), model), " What is it?")
    digest = asked.media[0].digest
    loop.add(_request("image", asked), time.monotonic())
    began = time.perf_counter()
    encoding = list(intervals(loop, "text 0", lambda _: digest in loop._encoding.cache))
    took_s = time.perf_counter() - began
    reading = list(intervals(loop, "text 0", lambda events: any(event.request_id == "image" for event in events)))
    median = statistics.median(quiet)
    print(f"{num_streams} streams, {1e3 * median:.0f} ms between tokens, longest {max(quiet) / median:.2f} times that")
    print(f"an image of {asked.media[0].num_tokens} tokens is encoded in {took_s:.0f} s: {_told(encoding, median)}")
    print(f"its prompt is read: {_told(reading, median)}")
    return 0 if _percentile_99(encoding) <= LIMIT * median else 1


def _told(seconds: list[float], unit_s: float) -> str:
    figures = {"median": statistics.median(seconds), "p99": _percentile_99(seconds), "longest": max(seconds)}
    return f"{len(seconds)} intervals, " + ", ".join(f"{name} {value / unit_s:.2f}" for name, value in figures.items())


def _percentile_99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[98]


def _request(name: str, asked: Prompt) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        prompt_token_ids=asked.token_ids,
        media=asked.media,
        max_tokens=3000,
        ignore_eos=True,
        sampling=SamplingParams(temperature=0.0),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--build", action="store_true", help="write the model, and measure nothing")
    parser.add_argument("--text-layers", type=int, default=6)
    parser.add_argument("--vision-layers", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--side", type=int, default=SIDE, help="tokens on a side of the image")
    chosen = parser.parse_args()
    if chosen.build:
        build(chosen.folder, text_layers=chosen.text_layers, vision_layers=chosen.vision_layers)
        return 0
    return measure(chosen.folder, chosen.streams, chosen.side)


if __name__ == "__main__":
    sys.exit(main())

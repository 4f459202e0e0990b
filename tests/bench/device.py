"""Whether a device computes right, and how fast: one file for anyone with a GPU or an NPU, done within five minutes.

    python tests/bench/device.py --device cuda
    python tests/bench/device.py --device npu --model Qwen2.5-0.5B-Instruct

It compares the device with float32 on the CPU (logits and greedy tokens of a small random model, and of yours),
measures decode and prefill against what memory and matrix products of the device give, and prints a report to paste
into an issue.
The exit status is 1 when the device computes something wrong.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import math
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.npu import cann_version
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.native.runner import LoadedModel, load_runner
from mindserve_engine.native.trial import trial_batch
from mindserve_engine.options import EngineOptions

TOLERANCE: Final = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.06}
"""Of the largest difference of logits, relative to the largest logit: what rounding explains."""
PROMPTS: Final = (3, 130, 300, 64)
"""Tokens of the sequences that are compared."""
NUM_DECODED: Final = 24
EMBEDDINGS: Final = ("embed_tokens", "word_embeddings", "token_embd", "wte", "embed_in")
HEADS: Final = ("lm_head", "output_layer", "output", "embed_out")
CONTEXT: Final = 512
"""Tokens that each sequence has when decode is measured."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a random model, and of what is measured with it."""

    hidden: int
    layers: int
    vocab_size: int = 8192
    head_dim: int = 64
    batches: tuple[int, ...] = (1, 8, 32)
    prompt: int = 1024
    matrix: int = 4096
    """Rows and columns of the products that give the peak."""
    copied_mb: int = 1024
    seconds: float = 4.0  # for each figure

    @property
    def num_parameters(self) -> int:
        """Of the matrices that each token passes."""
        inner = 3 * self.hidden
        per_layer = self.hidden * self.hidden * 5 // 2 + 3 * self.hidden * inner
        return self.layers * per_layer + self.vocab_size * self.hidden


CHECKED: Final = Size(hidden=256, layers=3, vocab_size=1000)
MEASURED: Final = {
    "cpu": Size(hidden=768, layers=12, batches=(1, 8, 32), prompt=512, matrix=1536, copied_mb=256),
    "cuda": Size(hidden=2048, layers=16, vocab_size=32_000, batches=(1, 8, 32, 128), prompt=2048),
    "npu": Size(hidden=2048, layers=16, vocab_size=32_000, batches=(1, 8, 32, 128), prompt=2048),
}
TINY: Final = Size(
    hidden=128, layers=1, vocab_size=300, batches=(1, 2), prompt=32, matrix=64, copied_mb=1, seconds=0.05
)


def write_random_model(folder: Path, size: Size) -> Path:
    """A Llama of random weights; half as many key heads as query heads."""
    hidden, inner, heads = size.hidden, 3 * size.hidden, size.hidden // size.head_dim
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "vocab_size": size.vocab_size,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": size.head_dim,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
    }
    shapes = {"model.embed_tokens.weight": (size.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for number in range(size.layers):
        prefix = f"model.layers.{number}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (hidden, hidden),
            prefix + "self_attn.k_proj.weight": (hidden // 2, hidden),
            prefix + "self_attn.v_proj.weight": (hidden // 2, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, hidden),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
        }
    random = torch.Generator().manual_seed(11)
    weights = {
        name: (torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random) * 1.5 * shape[1] ** -0.5)
        for name, shape in shapes.items()
    }
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def load(path: Path, device: str, dtype: str, **options: Any) -> LoadedModel:
    given = {"max_context": 1024, "max_batch_size": 8, "max_step_tokens": 1024, "block_size": 128, **options}
    return load_runner(EngineOptions(model_path=path, device=device, dtype=dtype, **given), lambda _what, _share: None)


def logits_of(loaded: LoadedModel, batch: StepBatch) -> Tensor:
    """[S, vocabulary] float32 on the host, by a captured graph where there is one."""
    runner: Any = loaded.runner
    with torch.inference_mode():
        logits = None if runner.graphs is None else runner.graphs.logits(batch)
        logits = runner.forward(runner._device.upload(batch)) if logits is None else logits
        on_host: Tensor = logits.float().cpu()
    if runner.graphs is not None:
        runner.graphs.settle()
    return on_host


@dataclass(frozen=True, slots=True)
class Comparison:
    """A device against float32 on the CPU, over the same tokens."""

    name: str
    dtype: str
    error: float
    """Largest difference of logits, relative to the largest logit."""
    num_tokens: int
    num_equal: int
    """Greedy tokens that are the same."""
    num_wrong: int
    """Greedy tokens that differ although their logits are further apart than rounding explains."""

    @property
    def is_right(self) -> bool:
        return self.error < TOLERANCE[self.dtype] and not self.num_wrong


def compare(name: str, path: Path, device: str, dtype: str, *, num_decoded: int = NUM_DECODED) -> Comparison:
    """Prompts side by side, then step by step the tokens that float32 finds best."""
    ours, exact = load(path, device, dtype), load(path, "cpu", "float32")
    lengths = list(PROMPTS)
    chosen: list[list[int]] = [[] for _ in PROMPTS]
    error, num_equal, num_wrong = 0.0, 0, 0
    for step in range(num_decoded + 1):
        batches = (_batch(one, lengths, chosen, num_new=None if step == 0 else 1) for one in (ours, exact))
        actual, expected = (logits_of(one, batch) for one, batch in zip((ours, exact), batches, strict=True))
        scale = float(expected.abs().max())
        error = max(error, float((actual - expected).abs().max()) / scale)
        best, found = expected.argmax(-1), actual.argmax(-1)
        margin = expected.gather(1, best[:, None]) - expected.gather(1, found[:, None])
        num_equal += int((best == found).sum())
        num_wrong += int((margin > 2 * TOLERANCE[dtype] * scale).sum())
        for tokens, token in zip(chosen, best.tolist(), strict=True):
            tokens.append(token)
        lengths = [length + 1 for length in lengths]
    return Comparison(name, dtype, error, (num_decoded + 1) * len(PROMPTS), num_equal, num_wrong)


def _batch(loaded: LoadedModel, lengths: Sequence[int], chosen: list[list[int]], *, num_new: int | None) -> StepBatch:
    """Room for all that will be decoded lies between the sequences, so that their blocks stay where they are."""
    size = loaded.runner.block_size
    batch = trial_batch(lengths, block_size=size, vocab_size=loaded.info.vocab_size, num_new=num_new)
    stride = -(-(max(PROMPTS) + NUM_DECODED + 1) // size)
    batch.block_tables = [
        list(range(number * stride, number * stride - (-length // size))) for number, length in enumerate(lengths)
    ]
    starts = [0, *batch.query_ends]
    batch.slots = [
        number * stride * size + position
        for number, (start, end) in enumerate(zip(starts, batch.query_ends, strict=False))
        for position in batch.positions[start:end]
    ]
    if num_new is not None:
        batch.token_ids = [tokens[-1] for tokens in chosen]
    return batch


@dataclass(frozen=True, slots=True)
class Peak:
    """What the device gives at most, as measured."""

    bytes_per_s: float
    """Read and written by a copy."""
    flops_per_s: float
    """By a product of two square matrices."""


def measure_peak(device: torch.device, dtype: torch.dtype, size: Size, wait: Callable[[], None]) -> Peak:
    source = torch.ones(size.copied_mb << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = best_time(lambda: target.copy_(source), size.seconds, wait)
    left = torch.randn(size.matrix, size.matrix).to(dtype).to(device)
    multiplied = best_time(lambda: left @ left, size.seconds, wait)
    return Peak(2 * source.numel() / copied, 2 * size.matrix**3 / multiplied)


def best_time(work: Callable[[], object], seconds: float, wait: Callable[[], None]) -> float:
    """Seconds of the fastest run after a first one that does not count."""
    work()
    wait()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True, slots=True)
class Speed:
    """One kind of step."""

    what: str
    tokens_per_s: float
    step_ms: float
    share: float
    """Of what the roofline allows."""
    bound: str


def measure_speed(loaded: LoadedModel, size: Size, weight_bytes: int, parameters: int, peak: Peak) -> Iterator[Speed]:
    """``weight_bytes``: read by each step. ``parameters``: of the matrices that each token passes."""
    runner: Any = loaded.runner
    shape = {"block_size": runner.block_size, "vocab_size": loaded.info.vocab_size}
    wait = runner._device.synchronize
    model = runner._model
    token_bytes = sum(one.token_bytes(model.cache_dtype) for one in model.cache_shapes)
    for rows in size.batches:
        if rows > loaded.info.max_batch_size or rows * -(-CONTEXT // runner.block_size) > runner.num_blocks:
            continue
        batch = trial_batch([CONTEXT] * rows, **shape, num_new=1)
        seconds = best_time(partial(runner.run, batch), size.seconds, wait)
        yield _speed(
            f"decode, {rows} at {CONTEXT} tokens",
            rows,
            seconds,
            read=(weight_bytes + rows * CONTEXT * token_bytes) / peak.bytes_per_s,
            multiplied=2 * parameters * rows / peak.flops_per_s,
        )
    batch = trial_batch([size.prompt], **shape)
    seconds = best_time(lambda: runner.run(batch), size.seconds, wait)
    yield _speed(
        f"prefill, {size.prompt} tokens",
        size.prompt,
        seconds,
        read=weight_bytes / peak.bytes_per_s,
        multiplied=2 * parameters * size.prompt / peak.flops_per_s,
    )


def _speed(what: str, num_tokens: int, seconds: float, *, read: float, multiplied: float) -> Speed:
    """``read`` and ``multiplied``: seconds that the memory and the products take at least."""
    bound = "memory" if read > multiplied else "products"
    return Speed(what, num_tokens / seconds, 1e3 * seconds, max(read, multiplied) / seconds, bound)


def describe(device: str, loaded: LoadedModel) -> dict[str, str]:
    facts = {"device": device, "machine": f"{platform.machine()}, {platform.system()} {platform.release()}"}
    for package in ("torch", "torch-npu", "flash-attn", "transformers"):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if device == "cuda":
        facts |= {"GPU": torch.cuda.get_device_name(), "CUDA": str(torch.version.cuda)}
    elif device == "npu":
        npu: Any = vars(torch)["npu"]
        facts |= {"NPU": npu.get_device_name(), "CANN": cann_version(npu)}
    else:
        facts["threads"] = str(torch.get_num_threads())
    runner: Any = loaded.runner
    facts["block size"] = str(runner.block_size)
    facts["graphs for batches of"] = "none" if runner.graphs is None else ", ".join(map(str, runner.graphs.sizes))
    return facts


def report(facts: dict[str, str], right: list[Comparison], peak: Peak, title: str, speeds: list[Speed]) -> str:
    lines = ["# Device report", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += ["", "## Against float32 on the CPU", ""]
    lines += ["| model | type | largest difference | allowed | greedy tokens equal | wrong | |", "|---" * 7 + "|"]
    for one in right:
        verdict = "right" if one.is_right else "**WRONG**"
        lines.append(
            f"| {one.name} | {one.dtype} | {one.error:.2e} | {TOLERANCE[one.dtype]:g} "
            f"| {one.num_equal} of {one.num_tokens} | {one.num_wrong} | {verdict} |"
        )
    lines += ["", f"## Speed: {title}", ""]
    lines += [f"Measured at most: {peak.bytes_per_s / 1e9:,.1f} GB/s, {peak.flops_per_s / 1e12:,.2f} TFLOP/s.", ""]
    lines += ["| step | tokens/s | ms a step | of the roofline | bound by |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.tokens_per_s:,.1f} | {one.step_ms:,.2f} | {one.share:.0%} | {one.bound} |"
        for one in speeds
    ]
    return "\n".join(lines) + "\n"


def weights_of(model: Path | None, size: Size) -> tuple[int, int]:
    """Parameters of the matrices that each token passes (a head's embedding of its own is only looked up), and their
    bytes in the file; from the shapes of tensors. ``None``: the random model's."""
    if model is None:
        return size.num_parameters, 2 * size.num_parameters
    tensors = list(_tensors(model))
    ends = [name.removesuffix(".weight").rpartition(".")[2] for name, _, _ in tensors]
    looked_up = EMBEDDINGS if any(end in HEADS for end in ends) else ()
    passed = [one for one, end in zip(tensors, ends, strict=True) if len(one[1]) > 1 and end not in looked_up]
    return sum(math.prod(shape) for _, shape, _ in passed), sum(num_bytes for _, _, num_bytes in passed)


def _tensors(model: Path) -> Iterator[tuple[str, list[int], int]]:
    if model.is_file():
        yield from ((one.name, [*map(int, one.shape)], int(one.n_bytes)) for one in GGUFReader(model).tensors)
        return
    index = model / "model.safetensors.index.json"
    for file in set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else ["model.safetensors"]:
        with (model / file).open("rb") as opened:
            header: dict[str, Any] = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            yield name, entry["shape"], entry["data_offsets"][1] - entry["data_offsets"][0]


def read_bytes(parameters: int, file_bytes: int, *, width: int, device: str) -> int:
    """By a step in ``width`` bytes: devices widen weights; the CPU may keep them as narrow as the file has them."""
    return parameters * width if device != "cpu" else min(parameters * width, file_bytes)


def run(device: str, dtype: str, model: Path | None, size: Size, *, num_decoded: int = NUM_DECODED) -> tuple[str, bool]:
    """The report, and whether all is right. Raises ``EngineError``."""
    with tempfile.TemporaryDirectory(prefix="mindserve-device-") as folder:
        checked, measured = Path(folder) / "checked", Path(folder) / "measured"
        for place in (checked, measured):
            place.mkdir()
        small = replace(CHECKED, vocab_size=min(CHECKED.vocab_size, size.vocab_size))
        right = [compare("small, random", write_random_model(checked, small), device, dtype, num_decoded=num_decoded)]
        if model is not None:
            right.append(compare(model.name, model, device, dtype, num_decoded=num_decoded))
        path = model or write_random_model(measured, size)
        context = max(size.prompt, CONTEXT) + 128
        limits = {"max_batch_size": max(size.batches), "max_context": context, "max_step_tokens": context}
        own: Any = create_device(EngineOptions(model_path=path, device=device, dtype=dtype))
        peak = measure_peak(own.torch_device, getattr(torch, dtype), size, own.synchronize)  # while there is room
        loaded = load(path, device, dtype, **limits)
        parameters, file_bytes = weights_of(model, size)
        num_bytes = read_bytes(parameters, file_bytes, width=getattr(torch, dtype).itemsize, device=device)
        speeds = list(measure_speed(loaded, size, num_bytes, parameters, peak))
        title = f"{model.name if model else 'random Llama'}, {parameters / 1e6:,.0f}M parameters, {dtype}"
        return report(describe(device, loaded), right, peak, title, speeds), all(one.is_right for one in right)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(MEASURED), default="cpu")
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), help="default: float32 on the CPU, else bfloat16")
    parser.add_argument("--model", type=Path, help="a model folder or GGUF file: checked and measured too")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes: only to see that it runs")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    dtype = given.dtype or ("float32" if given.device == "cpu" else "bfloat16")
    size = TINY if given.tiny else MEASURED[given.device]
    try:
        text, is_right = run(given.device, dtype, given.model, size, num_decoded=4 if given.tiny else NUM_DECODED)
    except EngineError as error:
        print(f"device.py: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

"""What it costs that weights stay quantised: perplexity of a GGUF file as our engine holds it, against float32.

    PYTHONPATH=. python tests/bench/perplexity.py MODEL.gguf [--text FILE]

Prompts are read many tokens at a time, answers written a few at a time, and the kernels differ: both are measured.
float32 needs four bytes of memory for each weight; the two are loaded one after the other.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mindserve_engine.native.runner import load_runner
from mindserve_engine.options import EngineOptions
from tests.perplexity import ANSWER_ROWS, PROMPT_ROWS, PROSE, Foretold, foretell, tokens_of


def measure(options: EngineOptions, tokens: list[int], rows: list[int]) -> tuple[str, list[Foretold]]:
    """How the weights are held, and what the model foretells with so many ``rows`` in a step."""
    loaded = load_runner(options, lambda _what, _share: None)
    return loaded.info.weights, [foretell(loaded, tokens, rows=number) for number in rows]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--text", type=Path, default=PROSE, help="what is to be foretold; default: prose of our own")
    parser.add_argument("--dtype", default="auto", help="how the engine holds the weights: as dtype of its options")
    parser.add_argument("--answer-rows", type=int, default=ANSWER_ROWS)
    parser.add_argument("--kv-memory-gb", type=float, default=1.0)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def main() -> None:
    """Measure and print the table."""
    arguments = _arguments()
    tokens = tokens_of(arguments.model, arguments.text.read_text("utf-8"))
    options = {
        "model_path": arguments.model,
        "kv_memory_gb": arguments.kv_memory_gb,
        "num_threads": arguments.threads,
        "max_batch_size": 1,
    }
    name, held = measure(EngineOptions(**options, dtype=arguments.dtype), tokens, [PROMPT_ROWS, arguments.answer_rows])
    gc.collect()
    _, (exact,) = measure(EngineOptions(**options, dtype="float32"), tokens, [PROMPT_ROWS])
    table = Table(title=f"{arguments.model.name}: {len(tokens)} tokens")
    for column in ("weights", "tokens in a step", "perplexity", "ratio to float32", "same best token"):
        table.add_column(column, justify="right")
    table.add_row("float32", str(PROMPT_ROWS), f"{exact.perplexity:.4f}", "", "")
    for rows, told in zip((PROMPT_ROWS, arguments.answer_rows), held, strict=True):
        figures = (f"{told.perplexity:.4f}", f"{told.ratio(exact):.5f}", f"{told.agreement(exact):.2%}")
        table.add_row(name, str(rows), *figures)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

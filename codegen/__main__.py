"""`python -m codegen [--check] [--spec PATH] [--out ROOT]`: write what follows from the spec, or check that it does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from codegen.diagnostics import SpecRefused
from codegen.outputs import SPEC, Drift, HandWritten, compare, generate, write

_ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """0: written, or up to date. 1: the spec was refused, files differ, or a hand-written file is in the way."""
    options = _parser().parse_args(arguments)
    try:
        made = generate(options.spec)
        if options.check:
            return _report_check(compare(options.out, made))
        drifts = write(options.out, made)
    except SpecRefused as refusal:
        for fault in refusal.diagnostics:
            print(fault, file=sys.stderr)
        print(f"{len(refusal.diagnostics)} faults; nothing was written", file=sys.stderr)
        return 1
    except HandWritten as obstacle:
        print(obstacle, file=sys.stderr)
        return 1
    for drift in drifts:
        print(f"{'removed' if drift.kind == 'stray' else 'written'}: {drift.path}")
    print(f"{len(made)} generated files are up to date")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m codegen", description="Generate what follows from spec/")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs from the spec")
    parser.add_argument(
        "--spec", type=Path, default=_ROOT / SPEC, help="the OpenAPI document; config.schema.yaml beside it"
    )
    parser.add_argument("--out", type=Path, default=_ROOT, metavar="ROOT", help="the tree to write into")
    return parser


def _report_check(drifts: list[Drift]) -> int:
    for drift in drifts:
        print(f"{drift.kind}: {drift.path}", file=sys.stderr)
        for line in drift.diff:
            print(f"    {line}", file=sys.stderr)
    if drifts:
        print(f"{len(drifts)} files differ from what the spec gives; run `make gen`", file=sys.stderr)
    return 1 if drifts else 0


if __name__ == "__main__":
    sys.exit(main())

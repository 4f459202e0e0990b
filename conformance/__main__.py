"""``python -m conformance``, and ``mindserve-conformance``."""

from __future__ import annotations

import sys


def main() -> int:
    """The suite's own packages come with an extra: where they are missing, that is what is said."""
    try:
        from conformance.cli import main as run
    except ModuleNotFoundError as error:
        print(f"error: {error}; pip install 'mindserve[conformance]' brings it", file=sys.stderr)  # noqa: T201
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())

"""``python -m mindserve``, and ``mindserve``."""

from __future__ import annotations

import sys


def main() -> int:
    """The server's packages come with an extra: where only the SDK is installed, that is what is said."""
    try:
        from mindserve.cli.main import main as run
    except ModuleNotFoundError as error:
        print(f"{error}; pip install 'mindserve[cpu]' brings what serving needs", file=sys.stderr)  # noqa: T201
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())

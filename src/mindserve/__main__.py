"""``python -m mindserve``: the command line."""

from mindserve.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())

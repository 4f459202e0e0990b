"""``python -m tests.npu_stub.run``, with a Python that has torch and torch_npu, and with gcc and binutils."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.npu_stub.stub import build


def main() -> int:
    """The exit status of what runs over the stub: a process has one private device for its life."""
    with tempfile.TemporaryDirectory() as folder:
        environ = build(Path(folder))
        return subprocess.run([sys.executable, "-m", "tests.npu_stub.inside"], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

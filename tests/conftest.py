"""What tests in several folders need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mindserve.cli.default_model import SMOLLM2, cache_folder


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file, put into the user's cache by ``mindserve fetch``."""
    path = cache_folder(os.environ) / SMOLLM2.file_name
    if not path.is_file():
        missing = f"the default model is not at {path}: run `mindserve fetch`"
        # CI fetches it before the tests; a skip there would hide that most proofs did not run.
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return path

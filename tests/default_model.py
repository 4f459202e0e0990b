"""Where the default model lies; `make model` puts it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mindserve.config.packaged import SMOLLM2
from mindserve_engine.user_cache import cache_folder


def default_model_file() -> Path:
    """The file ``MINDSERVE_TEST_MODEL`` names, or the one in the user's cache; without it the test is skipped."""
    named = os.environ.get("MINDSERVE_TEST_MODEL")
    path = Path(named) if named else cache_folder(os.environ) / SMOLLM2.file_name
    if not path.is_file():
        missing = f"the default model is not at {path}: run `mindserve fetch`"
        # CI fetches it before the tests; a skip there would hide that most proofs did not run.
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return path

"""What tests in several folders need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.default_model import default_model_file


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file."""
    return default_model_file()

"""What tests in several folders need."""

from __future__ import annotations

import os

# Before torch is loaded: threads of a test that shares the machine with others would wait by turning in circles. The
# server gives the same to its engine.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from pathlib import Path

import pytest

from tests.default_model import default_model_file


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file."""
    return default_model_file()

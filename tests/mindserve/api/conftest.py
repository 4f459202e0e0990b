"""A tokenizer of bytes, shared by the tests of this folder: every byte is a token, and so are a few pieces."""

from __future__ import annotations

import pytest

from mindserve.chat.tokenizer import ChatTokenizer
from mindserve_engine.types import EngineInfo
from tests.serving import scripted_model


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return scripted_model(tmp_path_factory.mktemp("model"), [{"default": True, "pieces": ["x"]}]).tokenizer


@pytest.fixture
def info() -> EngineInfo:
    return EngineInfo(model_type="t", vocab_size=259, max_context=100, max_prompt_tokens=99)

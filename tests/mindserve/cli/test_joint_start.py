"""An engine and its tokenizer: what is wrong with one is told without waiting for the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mindserve.cli.engine_options import EngineChoice
from mindserve.cli.joint_start import JointEngine
from mindserve.cli.late_tokenizer import LateTokenizer
from mindserve.errors import StartupError
from mindserve_engine.model_folder import media_placeholders
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import MediaKind
from tests import tiny_media_models as tiny


class Loading:
    """An engine whose weights take for ever."""

    def __init__(self) -> None:
        self.was_given_up = False

    async def start(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_given_up = True
            raise


@pytest.mark.parametrize("name", tiny.NAMES)
async def test_a_template_without_media_is_refused_before_the_weights_are_there(tmp_path: Path, name: str) -> None:
    folder = tiny.build(name, tmp_path)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    choice, engine = EngineChoice("native", EngineOptions(model_path=folder)), Loading()
    joint = JointEngine(engine, LateTokenizer(), choice, {})  # type: ignore[arg-type] - it is only started
    async with asyncio.timeout(120):
        with pytest.raises(StartupError, match="chat template writes no placeholder for media"):
            await joint.start()
    assert engine.was_given_up


@pytest.mark.parametrize(("content", "kinds"), [
    ('{"model_type": "qwen2_vl", "image_token_id": 5, "video_token_id": 6}', [MediaKind.IMAGE, MediaKind.VIDEO]),
    ('{"model_type": "qwen2_vl", "image_token_id": 5}', []),
    ('{"model_type": "qwen2_audio", "audio_token_index": 7}', [MediaKind.AUDIO]),
    ('{"model_type": "qwen2", "image_token_id": 5}', []),
    ("{}", []),
])  # fmt: skip
def test_placeholders_are_those_of_the_config(tmp_path: Path, content: str, kinds: list[MediaKind]) -> None:
    (tmp_path / "config.json").write_text(content)
    found = media_placeholders(tmp_path)
    assert [kind for kind in MediaKind if found is not None and found.token_id(kind) is not None] == kinds

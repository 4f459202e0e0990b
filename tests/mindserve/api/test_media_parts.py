"""Media parts of a request: where they are, what the model must take, and that their texts do not count or stay."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mindserve.api import capabilities
from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.capabilities import CARRIED, check_capabilities
from mindserve.api.checks import check_request
from mindserve.api.decode import decode_request
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.api.media_parts import take_media_parts
from mindserve.chat.media.refs import MediaPart
from mindserve.config.settings import MediaSettings, ServeSettings
from mindserve.errors import RequestRefused
from mindserve_engine.types import Capability, EngineInfo, MediaModel

VLLM = VllmDialect()
TEXT = {"type": "text", "text": "what is this?"}
PARTS: dict[str, dict[str, Any]] = {
    "image": {"type": "image_url", "image_url": "a.png"},
    "video": {"type": "video_url", "video_url": {"url": "a.mp4"}},
    "audio": {"type": "audio_url", "audio_url": "a.mp3"},
    "input": {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "WAV"}},
}
TOKENS = {"image": "image_token_id", "video": "video_token_id", "audio": "audio_token_id", "input": "audio_token_id"}
NAMES = {"image": "image", "video": "video", "audio": "audio", "input": "audio"}


def decoded(*messages: Any) -> ChatCompletionRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": content} for content in messages]}
    return decode_request(json.dumps(body).encode(), VLLM.requests, max_json_depth=10)


def test_parts_in_order_with_their_places() -> None:
    request = decoded(
        [TEXT, PARTS["image"]], "text", [PARTS["video"], TEXT, {"type": "image_url", "image_url": {"url": "b.png"}}],
        [PARTS["input"], PARTS["audio"]],
    )  # fmt: skip
    parts = take_media_parts(request)
    assert parts == [
        MediaPart(0, 1, "image_url", "image_url", "a.png"),
        MediaPart(2, 0, "video_url", "video_url.url", "a.mp4"),
        MediaPart(2, 2, "image_url", "image_url.url", "b.png"),
        MediaPart(3, 0, "input_audio", "input_audio.data", "QUJD"),
        MediaPart(3, 1, "audio_url", "audio_url", "a.mp3"),
    ]
    assert parts[2].field == "messages[2].content[2].image_url.url"


def test_the_request_does_not_keep_what_was_taken() -> None:
    payload = "/9j/" + "A" * 1000
    request = decoded(*([{"type": "image_url", "image_url": place}] for place in (payload, {"url": payload})))
    assert [part.text for part in take_media_parts(request)] == [payload] * 2
    assert payload not in msgspec.json.encode(request).decode()


@pytest.mark.parametrize("kind", PARTS)
def test_the_model_must_take_the_kind(info: EngineInfo, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "CARRIED", CARRIED | {Capability.MEDIA})
    settings = ServeSettings(model_name="m")
    able = msgspec.structs.replace(info, capabilities=frozenset(Capability))
    every = dict.fromkeys(TOKENS.values(), 5)
    request = decoded([TEXT, PARTS[kind]])
    for media in (None, MediaModel(), MediaModel(**{**every, TOKENS[kind]: None})):
        unable = msgspec.structs.replace(able, media=media)
        with pytest.raises(RequestRefused, match=f"{NAMES[kind]} input is not available") as refused:
            check_capabilities(request, settings, unable, family=None)
        assert refused.value.field == "messages[0].content[1].type"
    check_capabilities(request, settings, msgspec.structs.replace(able, media=MediaModel(**every)), family=None)
    check_capabilities(
        request, settings, msgspec.structs.replace(able, media=MediaModel(**{TOKENS[kind]: 0})), family=None
    )


def test_payloads_do_not_count_as_text() -> None:
    """Reading R15."""
    payload = "QUJD" * 1000
    parts = [
        TEXT,
        {"type": "input_audio", "input_audio": {"data": payload, "format": "mp3"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{payload}"}},
    ]
    check_request(decoded(parts), VLLM.rules, ServeSettings(model_name="m", max_messages_length=20))
    with pytest.raises(RequestRefused, match="17 characters of text"):
        check_request(decoded(parts), VLLM.rules, ServeSettings(model_name="m", max_messages_length=16))


def test_the_setting_narrows_the_number_of_parts() -> None:
    settings = ServeSettings(model_name="m", media=MediaSettings(max_parts=2))
    check_request(decoded([PARTS["image"]], [PARTS["audio"]]), VLLM.rules, settings)
    with pytest.raises(RequestRefused, match="hold 3 media parts; at most 2 are allowed"):
        check_request(decoded([PARTS["image"]] * 2, [PARTS["audio"]]), VLLM.rules, settings)


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": None},
    {"type": "image_url"},
    {"type": "image_url", "image_url": ""},
    {"type": "image_url", "image_url": {"url": 5}},
    {"type": "image_url", "image_url": ["a.png"]},
    {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "ogg"}},
    {"type": "input_audio", "input_audio": {"data": "QUJD"}},
    {"type": "input_audio", "input_audio": "QUJD"},
])  # fmt: skip
def test_parts_of_another_form_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused) as refused:
        decoded([TEXT, part])
    assert str(refused.value.field).startswith("messages[0].content[1].")

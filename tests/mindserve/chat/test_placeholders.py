"""Placeholders in templates written as those of Qwen2-VL and of Qwen2-Audio are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.media.decoding.pool import DecodedMedia
from mindserve.chat.placeholders import placeholder_places, with_media
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.errors import RequestRefused, StartupError
from mindserve_engine.types import MediaKind, MediaModel
from tests import tiny_media_models as tiny
from tests.decoding import whole_text

SEES = (
    "{% set seen = namespace(images=0, videos=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "{% set seen.images = seen.images + 1 %}{% if add_vision_id %}Picture {{ seen.images }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' or 'video' in part %}"
    "{% set seen.videos = seen.videos + 1 %}{% if add_vision_id %}Video {{ seen.videos }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEARS = (
    "{% set heard = namespace(number=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for part in message['content'] %}"
    "{% if 'audio' in part or 'audio_url' in part or message['type'] == 'audio' or part['type'] == 'audio' %}"
    "{% set heard.number = heard.number + 1 %}Audio {{ heard.number }}: <|audio_bos|><|AUDIO|><|audio_eos|>\n"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEARS_BY_KEY = HEARS.replace(" or part['type'] == 'audio'", "")
"""As those of Qwen2-Audio were before transformers' of June 2025."""
MODEL = MediaModel(image_token_id=tiny.IMAGE, video_token_id=tiny.VIDEO, audio_token_id=tiny.AUDIO)
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": ""}}
VIDEO: dict[str, Any] = {"type": "video_url", "video_url": ""}
AUDIO: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "image": "x", "audio": "y"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokenizer")
    tiny.tokenizer().save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def sees(folder: Path) -> ChatTokenizer:
    return load_tokenizer(folder, chat_template=SEES)


@pytest.fixture(scope="module", params=[HEARS, HEARS_BY_KEY], ids=["by type", "by key"])
def hears(folder: Path, request: pytest.FixtureRequest) -> ChatTokenizer:
    return load_tokenizer(folder, chat_template=request.param)


def test_a_template_that_sees(sees: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": [IMAGE, text("and"), VIDEO, text(""), IMAGE, text("?")]}]
    ids = sees.render_chat(messages, media=MODEL)
    assert whole_text(sees, ids, skip_special_tokens=False) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>and"
        "<|vision_start|><|video_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    named = sees.render_chat(messages, media=MODEL, template_kwargs={"add_vision_id": True})
    assert "Picture 2: <|vision_start|>" in whole_text(sees, named, skip_special_tokens=False)


def test_a_template_that_hears(hears: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": [text("What is said?"), AUDIO, AUDIO]}, {"role": "user", "content": "?"}]
    ids = hears.render_chat(messages, media=MODEL)
    assert whole_text(hears, ids, skip_special_tokens=False) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhat is said?"
        "Audio 1: <|audio_bos|><|AUDIO|><|audio_eos|>\nAudio 2: <|audio_bos|><|AUDIO|><|audio_eos|>\n<|im_end|>\n"
        "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_template_of_a_processor_comes_before_that_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained(tmp_path)
    processors = tmp_path / "chat_template.json"
    processors.write_text(json.dumps({"chat_template": HEARS}))
    messages = [{"role": "user", "content": [AUDIO]}]
    assert load_tokenizer(tmp_path).render_chat(messages, media=MODEL).count(tiny.AUDIO) == 1
    assert load_tokenizer(tmp_path, chat_template=HEARS + "?").template_source(with_tools=False) == HEARS + "?"
    for broken in ("", "{", "[]", "{}", '{"chat_template": 1}'):
        processors.write_text(broken)
        with pytest.raises(StartupError, match=r"chat_template\.json"):
            load_tokenizer(tmp_path)


def test_what_a_template_does_not_know_is_named(sees: ChatTokenizer, hears: ChatTokenizer) -> None:
    for tokenizer, wrong in ((sees, AUDIO), (hears, VIDEO)):
        right = IMAGE if tokenizer is sees else AUDIO
        messages = [{"role": "user", "content": [right]}, {"role": "user", "content": [text("x"), right, wrong]}]
        with pytest.raises(RequestRefused) as error:
            tokenizer.render_chat(messages, media=MODEL)
        assert error.value.field == "messages[1].content[2]"


def test_a_text_beside_media_that_a_template_leaves_out_is_named(folder: Path) -> None:
    deaf = load_tokenizer(folder, chat_template=SEES.replace("'text' in part", "'text' in part and loop.first"))
    with pytest.raises(RequestRefused) as error:
        deaf.render_chat([{"role": "user", "content": [IMAGE, text("and this")]}], media=MODEL)
    assert error.value.field == "messages[0].role"


PIECES = ["<|image_pad|>", "<|image", "_pad|>", "<|AUDIO|>", "<|", "|>", "<", "video_pad", "\ue0f1", "x", " ", "\n"]
PARTS = st.one_of(st.just(IMAGE), st.just(VIDEO), st.sampled_from(PIECES).map(text))


@given(st.lists(st.lists(PARTS, min_size=1, max_size=6), min_size=1, max_size=3), st.sampled_from(PIECES))
def test_text_makes_no_placeholder(sees: ChatTokenizer, contents: list[list[dict[str, Any]]], value: str) -> None:
    messages = [{"role": "user", "content": content} for content in contents]
    kwargs = {"image_token": value, "add_vision_id": value}
    kinds = {"image_url": MediaKind.IMAGE, "video_url": MediaKind.VIDEO}
    wanted = [kinds[part["type"]] for content in contents for part in content if part["type"] in kinds]
    ids = sees.render_chat(messages, media=MODEL, template_kwargs=kwargs)
    places = placeholder_places(ids, wanted, MODEL)
    assert places is not None
    assert [ids[place] for place in places] == [MODEL.token_id(kind) for kind in wanted]


def some(kind: MediaKind, num_tokens: int) -> DecodedMedia:
    digest = hashlib.sha256(str((kind, num_tokens)).encode()).digest()
    return DecodedMedia(
        kind=kind, num_tokens=num_tokens, shape=(1,), data=b"", digest=digest, seconds_per_frame=0.5 * num_tokens
    )


@given(st.lists(st.one_of(st.integers(0, 255), st.tuples(st.sampled_from(MediaKind), st.integers(1, 9)))))
def test_each_placeholder_is_repeated_in_place(prompt: list[int | tuple[MediaKind, int]]) -> None:
    wanted = [piece for piece in prompt if isinstance(piece, tuple)]
    ids = [piece if isinstance(piece, int) else MODEL.token_id(piece[0]) or 0 for piece in prompt]
    kinds = [kind for kind, _ in wanted]
    whole, items = with_media(ids, kinds, [some(*piece) for piece in wanted], MODEL)
    assert whole == [
        token_id
        for piece, token_id in zip(prompt, ids, strict=True)
        for _ in range(1 if isinstance(piece, int) else piece[1])
    ]
    assert [(item.kind, item.num_tokens) for item in items] == wanted
    for item in items:
        end = item.start + item.num_tokens
        assert whole[item.start : end] == [MODEL.token_id(item.kind)] * item.num_tokens
        assert item.seconds_per_frame == 0.5 * item.num_tokens


@given(st.lists(st.sampled_from(MediaKind)), st.lists(st.sampled_from(MediaKind)))
def test_other_placeholders_are_found_out(there: list[MediaKind], wanted: list[MediaKind]) -> None:
    ids = [MODEL.token_id(kind) or 0 for kind in there]
    assert (placeholder_places(ids, wanted, MODEL) is not None) == (there == wanted)

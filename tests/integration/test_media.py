"""Images, videos and recordings over HTTP: every form of every file, what the engine is given, and the answer."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from mindserve_engine.types import MediaKind
from tests.decoding import whole_text
from tests.integration.conftest import REPLIES
from tests.media_service import HOST, File, Service, decoded, files, first, media_service, part, text, turn
from tests.serving import chat_body, eventually, is_idle, scripted_model

CHAT = "/v1/chat/completions"
MIB = 1024 * 1024
HELLO = "Hello! How are you?"
PADS = {MediaKind.IMAGE: "<|image_pad|>", MediaKind.VIDEO: "<|video_pad|>", MediaKind.AUDIO: "<|AUDIO|>"}

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one server for all: its processes take a second to start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("media")
    model = scripted_model(folder, {"replies": REPLIES, "media": True})
    async with media_service(model, folder / "files") as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.live.url, timeout=60) as opened:
        yield opened


def forms(file: File, root: Path) -> Iterator[dict[str, Any]]:
    """Every way to give the file."""
    local = (file.name, f"file://{file.name}", f"{root}/{file.name}", f"file://{root}/{file.name}")
    for place in (*local, file.data_url, f"http://{HOST}/{file.name}"):
        yield part(file.kind, place)
        yield part(file.kind, place, as_object=True)
    if file.mime == "image/jpeg":
        yield part(file.kind, file.base64)
        yield part(file.kind, file.base64, as_object=True)
    if file.kind is MediaKind.AUDIO:
        ending = file.name.removeprefix("a.")
        for form in (ending, ending.upper()):
            yield {"type": "input_audio", "input_audio": {"data": file.base64, "format": form}}


def prompt_text(service: Service) -> str:
    """What the engine was asked last."""
    return whole_text(service.live.server.tokenizer, service.asked[-1].prompt_token_ids, skip_special_tokens=False)


def answer_of(response: httpx2.Response) -> str:
    assert response.status_code == 200, response.text
    if not response.headers["content-type"].startswith("text/event-stream"):
        return str(response.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    deltas = [choice["delta"] for line in lines[:-1] for choice in json.loads(line)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("dialect", ["vllm", "openai"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.name))
async def test_every_form(service: Service, client: httpx2.AsyncClient, file: File, stream: bool, dialect: str) -> None:
    shape, data, seconds = decoded(file, service.media)
    num_tokens = service.media.num_tokens(file.kind, shape)
    for form in forms(file, service.root):
        body = chat_body(messages=[turn(text("What is it? "), form)], stream=stream)
        response = await client.post(CHAT, json=body, headers={"X-Mindserve-Dialect": dialect})
        assert answer_of(response) == HELLO
        request = service.asked[-1]
        (item,) = request.media
        assert (item.kind, item.shape, item.data, item.num_tokens) == (file.kind, shape, data, num_tokens)
        assert item.seconds_per_frame == seconds
        assert prompt_text(service).count(PADS[file.kind]) == num_tokens
        if not stream:
            assert response.json()["usage"]["prompt_tokens"] == len(request.prompt_token_ids)


async def test_several_kinds_in_a_history_keep_their_order(service: Service, client: httpx2.AsyncClient) -> None:
    jpeg, png, mp4, *_, flac = files()
    messages = [
        turn(part(jpeg.kind, jpeg.name), text("one"), part(flac.kind, flac.data_url), role="system"),
        turn(text("two"), part(mp4.kind, f"http://{HOST}/{mp4.name}"), part(png.kind, png.name)),
        turn(text("three"), part(jpeg.kind, jpeg.data_url), role="assistant"),
        {"role": "user", "content": "four"},
    ]
    assert answer_of(await client.post(CHAT, json=chat_body(messages=messages))) == HELLO
    given = (jpeg, flac, mp4, png, jpeg)
    items = service.asked[-1].media
    assert [(item.kind, item.shape, item.data, item.seconds_per_frame) for item in items] == [
        (file.kind, *decoded(file, service.media)) for file in given
    ]
    image, sound, film, other, again = (PADS[item.kind] * item.num_tokens for item in items)

    def seen(pads: str) -> str:
        return f"<|vision_start|>{pads}<|vision_end|>"

    assert prompt_text(service) == (
        f"<|im_start|>system\n{seen(image)}one<|audio_bos|>{sound}<|audio_eos|><|im_end|>\n"
        f"<|im_start|>user\ntwo{seen(film)}{seen(other)}<|im_end|>\n"
        f"<|im_start|>assistant\nthree{seen(again)}<|im_end|>\n"
        "<|im_start|>user\nfour<|im_end|>\n<|im_start|>assistant\n"
    )
    for item in items:
        ids = service.asked[-1].prompt_token_ids[item.start : item.start + item.num_tokens]
        assert set(ids) == {service.media.token_id(item.kind)}


@pytest.mark.parametrize("stream", [False, True])
async def test_media_stand_and_are_named_where_they_are_beside_tools(
    service: Service, client: httpx2.AsyncClient, stream: bool
) -> None:
    """Turns with calls and results between them, one item twice; what cannot be decoded is named by its own turn."""
    jpeg, _, mp4, *_, flac = files()
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        turn(text("one"), part(jpeg.kind, jpeg.data_url)),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {**turn(part(flac.kind, flac.name), text("heard"), role="tool"), "tool_call_id": "1"},
        turn(part(mp4.kind, mp4.data_url), part(jpeg.kind, jpeg.data_url)),
    ]
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    asked = {"tools": [look], "stream": stream}
    response = await client.post(CHAT, json=chat_body(messages=messages, **asked))
    assert response.status_code == 200, response.text
    kinds = [item.kind for item in service.asked[-1].media]
    assert kinds == [MediaKind.IMAGE, MediaKind.AUDIO, MediaKind.VIDEO, MediaKind.IMAGE]
    messages[2]["content"] = [text("heard"), part(MediaKind.AUDIO, jpeg.data_url.replace("image/jpeg", "audio/flac"))]
    response = await client.post(CHAT, json=chat_body(messages=messages, **asked))
    assert response.status_code == 422
    assert "messages[2].content[1].audio_url: the bytes are a JPEG image" in response.text


async def test_text_beside_media_is_no_placeholder(service: Service, client: httpx2.AsyncClient) -> None:
    forged = [text("<|image_pad|>"), text("<|image"), part(MediaKind.IMAGE, "a.png"), text("_pad|><|AUDIO|>")]
    assert answer_of(await client.post(CHAT, json=chat_body(messages=[turn(*forged)]))) == HELLO
    (item,) = service.asked[-1].media
    ids = service.asked[-1].prompt_token_ids
    assert ids.count(service.media.image_token_id or -1) == item.num_tokens
    assert ids.count(service.media.audio_token_id or -1) == 0
    assert "<|image_pad|><|image<|vision_start|>" in prompt_text(service)


async def test_keys_that_are_not_of_the_contract_make_no_placeholder(
    service: Service, client: httpx2.AsyncClient
) -> None:
    """The templates of Qwen2-VL and Qwen2-Audio ask whether a part has a key, whatever its type."""
    odd = {**text("hello"), "image": "x", "audio_url": "y"}
    assert answer_of(await client.post(CHAT, json=chat_body(messages=[turn(odd, part(MediaKind.IMAGE, "a.png"))])))
    assert len(service.asked[-1].media) == 1


async def test_several_sequences(service: Service, client: httpx2.AsyncClient) -> None:
    body = chat_body(messages=[turn(part(MediaKind.IMAGE, "a.png"), text("count"))], n=2, temperature=1)
    response = await client.post(CHAT, json=body)
    assert response.status_code == 200
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1]
    assert (service.asked[-1].num_sequences, len(service.asked[-1].media)) == (2, 1)


async def test_nothing_is_held_while_the_answer_is_generated(service: Service, client: httpx2.AsyncClient) -> None:
    body = chat_body(messages=[turn(part(MediaKind.IMAGE, "a.png"), text("hang after two"))], stream=True)
    async with client.stream("POST", CHAT, json=body) as response:
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        assert service.live.server.held_bytes.num_held == 0
    await eventually(lambda: is_idle(service.live))


async def test_files_are_let_go_before_the_answer(service: Service, client: httpx2.AsyncClient) -> None:
    """While the answer is generated nobody holds the body, its Base64, the file, or what was made of it."""
    large = File(MediaKind.IMAGE, "large.jpg", "image/jpeg", first(MediaKind.IMAGE).data + bytes(16 * MIB))
    messages = [turn(part(large.kind, large.data_url), text("hang after two"))]
    body = json.dumps(chat_body(messages=messages, stream=True)).encode()
    tracemalloc.start()
    try:
        async with client.stream("POST", CHAT, content=body) as response:
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 32 * MIB
    assert held < 2 * MIB
    await eventually(lambda: is_idle(service.live))


async def test_text_alone(service: Service, client: httpx2.AsyncClient) -> None:
    assert answer_of(await client.post(CHAT, json=chat_body())) == HELLO
    assert service.asked[-1].media == ()


async def test_files_of_one_content_have_one_digest(service: Service, client: httpx2.AsyncClient) -> None:
    png = first(MediaKind.IMAGE)
    for place in (png.name, png.data_url):
        await client.post(CHAT, json=chat_body(messages=[turn(part(png.kind, place))]))
    (one,), (other,) = service.asked[-1].media, service.asked[-2].media
    assert one.digest == other.digest

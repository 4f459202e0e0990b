"""What becomes of requests with media that cannot be answered: named parts, nothing fetched, nothing held."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mindserve_engine.scripted.model import CHAT_TEMPLATE
from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.media_service import HOST, Service, files, first, media_service, part, text, turn
from tests.mindserve.chat.media.decoding.makers import audio_file, image_file, picture, tone
from tests.serving import chat_body, eventually, is_idle, post_chat, scripted_model

CHAT = "/v1/chat/completions"
PICTURE = part(MediaKind.IMAGE, f"http://{HOST}/a.png")
ONLY_USERS = CHAT_TEMPLATE.replace(
    "{% if part.type == 'image' %}",
    "{% if message.role == 'system' and part.type != 'text' %}{% elif part.type == 'image' %}",
)
"""A template that leaves media of system messages out."""
IMAGES_FIRST = CHAT_TEMPLATE.replace(
    "{% for part in message.content %}", "{% for part in message.content | sort(attribute='type') | reverse %}"
)

MakeService = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def serve(tmp_path: Path) -> MakeService:
    """Fields of the script, and settings of media."""

    def make(script: dict[str, Any] | None = None, **settings: Any) -> AbstractAsyncContextManager[Service]:
        model = scripted_model(tmp_path, {"replies": REPLIES, "media": True, **(script or {})})
        return media_service(model, tmp_path / "files", **settings)

    return make


@pytest.fixture
async def service(serve: MakeService) -> AsyncIterator[Service]:
    async with serve() as started:
        yield started


async def refusal(service: Service, *messages: dict[str, Any], status: int = 422, **fields: Any) -> str:
    """The text of the error; the engine saw nothing of it."""
    num_asked = len(service.asked)
    response = await post_chat(service.live, chat_body(messages=list(messages), **fields))
    assert response.status_code == status, response.text
    assert len(service.asked) == num_asked
    assert service.live.server.held_bytes.num_held == 0
    return str(response.json()["error"])


def was_asked(service: Service) -> bool:
    return bool(service.web.looked_up or service.web.dialled)


@pytest.mark.parametrize("field", [{"temperature": -1}, {"top_p": 7}, {"max_tokens": 0}])
async def test_nothing_is_fetched_for_a_request_that_is_wrong(service: Service, field: dict[str, Any]) -> None:
    assert next(iter(field)) in await refusal(service, turn(text("What?"), PICTURE), **field)
    assert not was_asked(service)


async def test_nothing_is_fetched_for_a_model_of_text(serve: MakeService) -> None:
    async with serve({"media": False}) as service:
        error = await refusal(service, turn(text("What?"), PICTURE))
        assert "messages[0].content[1].type: image input is not available on this server" in error
        assert not was_asked(service)


async def test_nothing_is_fetched_for_a_text_that_is_too_long(serve: MakeService) -> None:
    async with serve({"max_context": 100}) as service:
        assert "maximum context length" in await refusal(service, turn(text("x" * 200), PICTURE))
        assert not was_asked(service)


async def test_nothing_is_fetched_beside_a_part_that_is_wrong(service: Service) -> None:
    wrong = part(MediaKind.AUDIO, "data:audio/mpeg;base64,???")
    assert "messages[1].content[0].audio_url" in await refusal(service, turn(PICTURE), turn(wrong))
    assert "media parts" in await refusal(service, turn(*[PICTURE] * 21))
    assert not was_asked(service)


async def test_media_that_the_template_leaves_out(serve: MakeService) -> None:
    async with serve({"chat_template": ONLY_USERS}) as service:
        messages = (turn(text("be kind"), PICTURE, role="system"), turn(text("What?"), PICTURE))
        error = await refusal(service, *messages)
        assert "messages[0].content[1]: the model's chat template has no place for image input here" in error
        assert not was_asked(service)
        response = await post_chat(service.live, chat_body(messages=list(messages[1:])))
        assert response.status_code == 200


async def test_media_that_the_template_puts_in_another_order(serve: MakeService) -> None:
    async with serve({"chat_template": IMAGES_FIRST}) as service:
        sound = part(MediaKind.AUDIO, "a.wav")
        assert "in their order" in await refusal(service, turn(sound, PICTURE))
        assert (await post_chat(service.live, chat_body(messages=[turn(PICTURE, sound)]))).status_code == 200


def too_long() -> str:
    return "data:audio/flac;base64," + base64.b64encode(audio_file(tone(31), "flac")).decode()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: part(MediaKind.IMAGE, f"http://{HOST}/missing"), "messages[0].content[2].image_url cannot be fetched"),
        (lambda: part(MediaKind.IMAGE, "none.png", as_object=True), "messages[0].content[2].image_url.url "),
        (lambda: part(MediaKind.IMAGE, f"http://{HOST}/a.wav"), "messages[0].content[2].image_url: the bytes are"),
        (lambda: part(MediaKind.VIDEO, f"http://{HOST}/ok"), "messages[0].content[2].video_url: the bytes are no"),
        (lambda: part(MediaKind.AUDIO, too_long()), "messages[0].content[2].audio_url: the audio is longer than 30 s"),
    ],
    ids=["missing", "no such file", "another kind", "no file of the kind", "too long"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_part_is_named(
    service: Service, made: Callable[[], dict[str, Any]], reason: str, stream: bool
) -> None:
    assert reason in await refusal(service, turn(text("a"), PICTURE, made()), stream=stream)


async def test_the_openai_dialect_names_the_part(service: Service) -> None:
    async with httpx2.AsyncClient(base_url=service.live.url, timeout=30) as client:
        body = chat_body(messages=[turn(part(MediaKind.IMAGE, f"http://{HOST}/ok"))])
        response = await client.post(CHAT, json=body, headers={"X-Mindserve-Dialect": "openai"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[0].image_url"


async def test_a_context_that_is_too_short_for_media_says_what_each_takes(serve: MakeService) -> None:
    async with serve({"max_context": 40}) as service:
        error = await refusal(service, turn(PICTURE, part(MediaKind.AUDIO, "a.wav")))
        assert "15 for the image in messages[0].content[0], 12 for the audio in messages[0].content[1]" in error
        assert "39 of them for the prompt" in error


async def test_one_budget_for_files_and_for_what_is_made_of_them(serve: MakeService) -> None:
    """A picture of one colour is far smaller as a file."""
    plain = image_file(picture(28, 28)[:1, :1].repeat(560, 0).repeat(560, 1))
    assert len(plain) < 100_000 < 560 * 560 * 3
    url = f"data:image/png;base64,{base64.b64encode(plain).decode()}"
    async with serve(max_in_flight_bytes=560 * 560 * 3) as service:
        assert "maxMediaInFlight" in await refusal(service, turn(part(MediaKind.IMAGE, url)), status=503)
        assert (await post_chat(service.live, chat_body(messages=[turn(PICTURE)]))).status_code == 200
    async with serve(max_total_bytes=560 * 560 * 3 - 1) as service:
        error = await refusal(service, turn(PICTURE, part(MediaKind.IMAGE, url)))
        assert "messages[0].content[1].image_url" in error
        assert "maxMediaTotal" in error


async def test_a_client_that_leaves_during_a_fetch_frees_what_it_held(service: Service) -> None:
    body = chat_body(messages=[turn(part(MediaKind.IMAGE, f"http://{HOST}/hang-in-body"))])
    async with httpx2.AsyncClient(base_url=service.live.url, timeout=60) as client:
        asking = asyncio.create_task(client.post(CHAT, content=json.dumps(body)))
        await service.web.events["stalled"].wait()
        await eventually(lambda: service.live.server.held_bytes.num_held > 0)
        asking.cancel()
        async with asyncio.timeout(20):
            await service.web.events["left"].wait()
    await eventually(lambda: is_idle(service.live))
    await eventually(lambda: service.live.server.held_bytes.num_held == 0)
    assert (await post_chat(service.live, chat_body(messages=[turn(PICTURE)]))).status_code == 200


async def test_a_server_that_closes_takes_nothing_more(service: Service) -> None:
    assert (await post_chat(service.live, chat_body(messages=[turn(PICTURE)]))).status_code == 200
    await service.live.server.media.close()
    inline = part(MediaKind.AUDIO, first(MediaKind.AUDIO).data_url)
    response = await post_chat(service.live, chat_body(messages=[turn(inline)]))
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")


async def test_other_requests_go_on(service: Service) -> None:
    """Of many at a time those alone fail that are wrong."""
    good = [chat_body(messages=[turn(part(file.kind, file.name))]) for file in files()]
    bad = [chat_body(messages=[turn(part(MediaKind.IMAGE, f"http://{HOST}/ok"))])] * 3
    responses = await asyncio.gather(*(post_chat(service.live, body) for body in good + bad))
    assert [response.status_code for response in responses] == [200] * len(good) + [422] * len(bad)

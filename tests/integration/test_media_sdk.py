"""Parts made by the SDK, over HTTP: what the model sees is the file that the caller gave, however it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from mindserve_client import BadRequest, ValidationFailed, audio, image, input_audio, text, video
from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.integration.test_media import HELLO
from tests.media_service import HOST, File, Service, decoded, files, first, media_service
from tests.mindserve_client.asking import KINDS, asking
from tests.serving import scripted_model

MAKERS: Final[dict[MediaKind, Callable[..., Any]]] = {
    MediaKind.IMAGE: image,
    MediaKind.VIDEO: video,
    MediaKind.AUDIO: audio,
}
DIALECTS: Final = ("vllm", "openai")

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.parametrize("dialect", DIALECTS),
    pytest.mark.parametrize("kind", KINDS),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("media")
    model = scripted_model(folder, {"replies": REPLIES, "media": True})
    async with media_service(model, folder / "files") as started:
        yield started


def given(file: File, root: Path) -> Iterator[Any]:
    """Every way in which the SDK takes a file."""
    make, ending = MAKERS[file.kind], file.name.removeprefix("a.")
    yield make(root / file.name)
    yield make(file.data)
    yield make(file.base64, format=ending)
    yield make(file.data_url)
    yield make(file.name)
    yield make(f"http://{HOST}/{file.name}")
    if file.mime == "image/jpeg":
        yield make(file.base64)
    if file.kind is MediaKind.AUDIO:
        for source in (root / file.name, file.data, file.base64):
            yield input_audio(source)


async def test_every_way_to_give_a_file(service: Service, kind: str, dialect: str) -> None:
    async with asking(kind, service.live.url, dialect=dialect) as client:
        for file in files():
            seen = decoded(file, service.media)
            for part in given(file, service.root):
                answer = await client.whole(messages=[{"role": "user", "content": [text("What is it?"), part]}])
                assert answer.choices[0].message.content == HELLO
                asked = service.asked[-1]
                (item,) = asked.media
                assert (item.shape, item.data, item.seconds_per_frame) == seen
                assert answer.usage.prompt_tokens == len(asked.prompt_token_ids) > item.num_tokens


async def test_several_in_a_stream(service: Service, kind: str, dialect: str) -> None:
    jpeg, wav = first(MediaKind.IMAGE), next(file for file in files() if file.name == "a.wav")
    content = [text("Does "), image(jpeg.data), text(" sound like "), input_audio(wav.data), text("?")]
    chunks: list[Any] = []
    async with asking(kind, service.live.url, dialect=dialect) as client:
        await client.chunks(chunks, messages=[{"role": "user", "content": content}])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == HELLO
    assert [item.kind for item in service.asked[-1].media] == [MediaKind.IMAGE, MediaKind.AUDIO]


async def test_what_cannot_be_read_is_told_by_its_place(service: Service, kind: str, dialect: str) -> None:
    damaged = image(first(MediaKind.IMAGE).data[:200])
    failure = ValidationFailed if dialect == "vllm" else BadRequest
    async with asking(kind, service.live.url, dialect=dialect) as client:
        with pytest.raises(failure, match=r"messages\[0\]\.content\[1\]\.image_url"):
            await client.whole(messages=[{"role": "user", "content": [text("What is it?"), damaged]}])

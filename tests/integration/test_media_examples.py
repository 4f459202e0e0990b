"""The document's requests with media, byte for byte, as its clients send them: decoded, answered, and seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
import pytest
import pytest_asyncio

from mindserve_engine.types import MediaKind
from tests.integration.conftest import REPLIES
from tests.integration.test_media import HELLO, answer_of
from tests.media_service import HOST, File, Service, decoded, files, media_service
from tests.serving import scripted_model

EXAMPLES: Final = Path(__file__).parents[2] / "spec" / "examples" / "requests"
CHAT: Final = "/v1/chat/completions"
IMAGES: Final = ("image-plain", "image-object", "image-file-url", "image-data-url")
PLACEHOLDER: Final = {"image-data-url": b"{image_base64}", "input-audio": b"{audio_base64_data}"}
"""Where the document leaves out the data (E12)."""
PLACE: Final = {
    "image-data-url": "messages[0].content[1].image_url.url",
    "input-audio": "messages[0].content[0].input_audio.data",
}
MODELS: Final = ("Qwen2-VL", "Qwen2-Audio")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Service]]:
    """A server of each model that the examples ask, with ``demo.png`` and its like in the folder of media."""
    async with AsyncExitStack() as stack:
        started = {}
        for name in MODELS:
            folder = tmp_path_factory.mktemp(name)
            model = scripted_model(folder, {"replies": REPLIES, "media": True})
            service = await stack.enter_async_context(media_service(model, folder / "files", model_name=name))
            for file in files():
                (service.root / demo(file)).write_bytes(file.data)
                service.web.files[f"/{demo(file)}"] = file.data
            started[name] = service
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60, headers={"Content-Type": "application/json"}) as opened:
        yield opened


def demo(file: File) -> str:
    return file.name.replace("a.", "demo.")


def of_mime(mime: str) -> File:
    return next(file for file in files() if file.mime == mime)


@dataclass(frozen=True)
class Sent:
    """A request, and what its model should see."""

    name: str
    body: bytes
    file: File

    @property
    def model(self) -> str:
        return MODELS[self.file.kind is MediaKind.AUDIO]


def example(name: str) -> bytes:
    return (EXAMPLES / f"{name}.json").read_bytes()


def as_printed() -> list[Sent]:
    """Those that name a file."""
    return [Sent(name, example(name), of_mime("image/png")) for name in IMAGES if name not in PLACEHOLDER]


def with_data() -> list[Sent]:
    """Those with a placeholder, which alone is replaced."""
    jpeg, wav = of_mime("image/jpeg"), of_mime("audio/x-wav")
    return [
        Sent(name, example(name).replace(PLACEHOLDER[name], file.base64.encode()), file)
        for name, file in (("image-data-url", jpeg), ("input-audio", wav))
    ]


def of_other_kinds() -> list[Sent]:
    """ "For details about how to use video formats 1 to 4, see image formats 1 to 4"; so with audio formats."""
    made = []
    for file in files():
        for name in IMAGES:
            body = (
                example(name)
                .replace(b"image_url", f"{file.kind}_url".encode())
                .replace(b"demo.png", demo(file).encode())
            )
            body = body.replace(b"image/jpeg;base64,{image_base64}", f"{file.mime};base64,{file.base64}".encode())
            body = body.replace(b"Qwen2-VL", MODELS[file.kind is MediaKind.AUDIO].encode())
            made.append(Sent(f"{name} as {file.mime}", body, file))
    return made


def fetched() -> list[Sent]:
    """Formats 1 and 2 take "HTTP and HTTPS URLs" in the place of the name."""
    png, place = of_mime("image/png"), f"http://{HOST}/demo.png".encode()
    return [Sent(f"{name} by URL", example(name).replace(b"demo.png", place), png) for name in IMAGES[:2]]


ALL: Final = (*as_printed(), *with_data(), *of_other_kinds(), *fetched())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sent", ALL, ids=lambda sent: str(sent.name))
async def test_an_example_is_answered(
    services: dict[str, Service], client: httpx2.AsyncClient, sent: Sent, stream: bool
) -> None:
    service = services[sent.model]
    body = sent.body.replace(b'"stream": false', b'"stream": true') if stream else sent.body
    assert (b'"stream": true' in body) is stream
    response = await client.post(f"{service.live.url}{CHAT}", content=body)
    assert answer_of(response) == HELLO
    asked = service.asked[-1]
    (item,) = asked.media
    shape, data, seconds = decoded(sent.file, service.media)
    assert (item.kind, item.shape, item.data, item.seconds_per_frame) == (sent.file.kind, shape, data, seconds)
    assert (asked.num_sequences, asked.max_tokens) == (1, 20)
    assert {2, 13} <= set(asked.stop_token_ids)
    if not stream:
        assert response.json()["model"] == sent.model
        assert response.json()["usage"]["prompt_tokens"] == len(asked.prompt_token_ids) > item.num_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", PLACEHOLDER)
async def test_a_placeholder_is_decoded_and_then_refused_by_its_place(
    services: dict[str, Service], client: httpx2.AsyncClient, name: str, stream: bool
) -> None:
    """E12: as printed it keeps the contract, but what stands in the place of the data is none."""
    service = services[MODELS[name == "input-audio"]]
    body = example(name)
    if stream:
        body = body.replace(b'"stream": false', b'"stream": true')
    num_asked = len(service.asked)
    response = await client.post(f"{service.live.url}{CHAT}", content=body)
    place = {
        "image-data-url": "messages[0].content[1].image_url.url",
        "input-audio": "messages[0].content[0].input_audio.data",
    }
    assert response.status_code == 422
    assert place[name] in response.json()["error"]
    assert "Base64" in response.json()["error"]
    assert len(service.asked) == num_asked


async def test_no_example_with_media_is_left_out() -> None:
    kinds = (b"image_url", b"video_url", b"audio_url", b"input_audio")
    with_media = {path.stem for path in EXAMPLES.glob("*.json") if any(kind in path.read_bytes() for kind in kinds)}
    assert with_media == {sent.name for sent in (*as_printed(), *with_data())} == {*IMAGES, "input-audio"}

"""A server of a model that sees and hears, a web that it may fetch from, and what its engine was asked."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from mindserve.api.metrics import engine_figures
from mindserve.chat.media.budget import ByteBudget
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.worker import decode
from mindserve.chat.media.fetch import Fetcher
from mindserve.chat.media.intake import MediaIntake
from mindserve.chat.media.limits import media_limits
from mindserve.config.settings import MediaSettings, ServeSettings
from mindserve.observe.metrics import Metrics
from mindserve_engine.types import GenerationRequest, MediaKind, MediaModel
from tests.mindserve.chat.media.decoding import makers
from tests.mindserve.chat.media.web import PUBLIC, Web, running_web
from tests.serving import MODEL, Live, Model, running

HOST = "media.test"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class File:
    """One that tests send."""

    kind: MediaKind
    name: str
    mime: str
    data: bytes

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.mime};base64,{self.base64}"


@cache
def files() -> tuple[File, ...]:
    """One of each type of the document's tables 1 to 3."""
    image, frames, sound = makers.picture(84, 140), makers.clip(10, 56, 84), makers.tone(0.5)
    return (
        File(MediaKind.IMAGE, "a.jpg", "image/jpeg", makers.image_file(image, "JPEG")),
        File(MediaKind.IMAGE, "a.png", "image/png", makers.image_file(image)),
        File(MediaKind.VIDEO, "a.mp4", "video/mp4", makers.video_file(frames)),
        File(MediaKind.VIDEO, "a.avi", "video/x-msvideo", makers.video_file(frames, "avi", "mpeg4")),
        File(MediaKind.VIDEO, "a.wmv", "video/x-ms-wmv", makers.video_file(frames, "asf", "wmv2")),
        File(MediaKind.AUDIO, "a.mp3", "audio/mpeg", makers.audio_file(sound, "mp3")),
        File(MediaKind.AUDIO, "a.wav", "audio/x-wav", makers.wav_file(sound)),
        File(MediaKind.AUDIO, "a.flac", "audio/flac", makers.audio_file(sound, "flac")),
    )


def first(kind: MediaKind) -> File:
    return next(file for file in files() if file.kind is kind)


def part(kind: MediaKind, place: str, *, as_object: bool = False) -> dict[str, Any]:
    name = f"{kind}_url"
    return {"type": name, name: {"url": place} if as_object else place}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def turn(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def decoded(file: File, model: MediaModel) -> tuple[tuple[int, ...], bytes, float]:
    """Shape and bytes of what a model should see of the file, and its seconds per frame."""
    array, seconds_per_frame = decode(file.kind, BytesIO(file.data), model, DecodeLimits())
    return array.shape, array.tobytes(), seconds_per_frame


@dataclass(frozen=True)
class Service:
    """A server, its web, and the requests that reached its engine."""

    live: Live
    web: Web
    root: Path
    asked: list[GenerationRequest]

    @property
    def media(self) -> MediaModel:
        model = self.live.engine.info.media
        assert model is not None
        return model


@asynccontextmanager
async def media_service(
    model: Model,
    root: Path,
    names: Sequence[str] = (HOST,),
    serve: ServeSettings | None = None,
    *,
    model_name: str = MODEL,
    **settings: Any,
) -> AsyncIterator[Service]:
    """``settings``: of ``MediaSettings``. All files lie in ``root`` and on the hosts ``names``."""
    chosen = MediaSettings(**{"root": str(root), "allowed_hosts": tuple(names), **settings})
    limits, budget = media_limits(chosen), ByteBudget(chosen.max_in_flight_bytes)
    _write_files(root)
    async with running_web({name: [PUBLIC] for name in names}) as web:
        web.files = {f"/{file.name}": file.data for file in files()}
        fetcher = Fetcher(limits, resolve=web.resolve, dialler=web, ssl_context=NO_TLS)
        intake = MediaIntake(chosen, budget, fetcher)
        metrics = Metrics(
            model_names=(model_name,), engine_figures=lambda: engine_figures(model.engine.stats()), media=intake.tally
        )
        asked = _asked(model)
        served = msgspec.structs.replace(serve or ServeSettings(model_name=model_name), media=chosen)
        async with running(model, served, held_bytes=budget, media=intake, metrics=metrics) as live:
            yield Service(live, web, root, asked)
            assert budget.num_held == 0


def _write_files(root: Path) -> None:
    root.mkdir(exist_ok=True)
    for file in files():
        (root / file.name).write_bytes(file.data)


def _asked(model: Model) -> list[GenerationRequest]:
    asked: list[GenerationRequest] = []
    admit = model.engine.admit

    async def noting(request: GenerationRequest) -> Any:
        asked.append(request)
        return await admit(request)

    model.engine.admit = noting  # type: ignore[method-assign]
    return asked

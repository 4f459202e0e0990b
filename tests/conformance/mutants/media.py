"""Servers of a model that sees and hears, each wrong in one way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.conformance.mutants.faults import DONE, Json, Mutant, accepting, compact, on_request, refusal, refusing
from tests.conformance.mutants.lacking import HELLO
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question

KINDS: Final = ("image_url", "video_url", "audio_url", "input_audio")
FEW_TOKENS: Final = 7
NUM_MOST: Final = 20

Part = dict[str, Any]


def _parts(fields: Json) -> list[Part]:
    """All media of a request, in their order."""
    messages = fields.get("messages") or ()
    contents = [one["content"] for one in messages if isinstance(one, dict) and isinstance(one.get("content"), list)]
    return [part for content in contents for part in content if part.get("type") in KINDS]


def _url(part: Part) -> str:
    medium = part[part["type"]]
    told = medium if isinstance(medium, str) else medium.get("url", medium.get("data", ""))
    return str(told)


def without(is_lost: Callable[[int, int, Part], bool]) -> Fault:
    """The good server does not get the media of which ``is_lost(message, place among its media, part)``."""

    def changed(fields: Json) -> Json:
        return {**fields, "messages": [_kept(i, one, is_lost) for i, one in enumerate(fields.get("messages") or ())]}

    return on_request(changed)


def _kept(i: int, message: Json, is_lost: Callable[[int, int, Part], bool]) -> Json:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    media = [part for part in message["content"] if part.get("type") in KINDS]
    lost = [part for number, part in enumerate(media) if is_lost(i, number, part)]
    return {**message, "content": [part for part in message["content"] if not any(part is one for one in lost)]}


async def _uncounted(question: Question, forward: Forward) -> Answer:
    """The usage tells the text's tokens, whatever stands beside it."""
    answer = await forward(question)
    if question.fields is None or answer.status != 200 or not _parts(question.fields):
        return answer
    if not answer.is_stream:
        return answer.with_body(compact(_with_few(json.loads(answer.body))))
    frames = answer.body.removesuffix(b"\n\n").split(b"\n\n")
    told = [frame if frame == DONE else b"data: " + compact(_with_few(json.loads(frame[6:]))) for frame in frames]
    return answer.with_body(b"".join(frame + b"\n\n" for frame in told))


def _with_few(body: Json) -> Json:
    usage = body.get("usage")
    if usage:
        usage["prompt_tokens"] = FEW_TOKENS
        usage["total_tokens"] = FEW_TOKENS + usage["completion_tokens"]
    return body


def _strings_twice(fields: Json) -> Json:
    """What is given as a string is seen twice."""
    messages = [
        {**one, "content": [part for part in one["content"] for _ in range(1 + isinstance(part.get("image_url"), str))]}
        if isinstance(one.get("content"), list)
        else one
        for one in fields.get("messages") or ()
    ]
    return {**fields, "messages": messages}


async def _first_part_named(question: Question, forward: Forward) -> Answer:
    answer = await forward(question)
    return refusal("messages[0].content[0] cannot be used") if answer.status == 422 else answer


async def _nothing_named(question: Question, forward: Forward) -> Answer:
    answer = await forward(question)
    return refusal("the medium cannot be used") if answer.status == 422 else answer


async def _broken_media_are_our_fault(question: Question, forward: Forward) -> Answer:
    answer = await forward(question)
    if answer.status != 422:
        return answer
    body = compact({"error": "messages[0].content[0] broke the decoder", "error_type": "Incomplete Generation"})
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return Answer(500, headers, body)


def _taking(when: Callable[[Part], bool]) -> Fault:
    """A request with such a part is answered as if it were a plain one."""
    return accepting(lambda fields: any(map(when, _parts(fields))), messages=HELLO)


def _refusing(when: Callable[[Part], bool]) -> Fault:
    return refusing(lambda fields: any(map(when, _parts(fields))), "messages[0].content[0]")


def _is_short(part: Part) -> bool:
    return len(_url(part)) < 200


IGNORED: Final = (
    Mutant("images passed over", without(lambda i, k, part: part["type"] == "image_url"), "media.image",
           "longer-prompt"),
    Mutant("images passed over in streams", on_request(lambda f: _kept_all(f) if f.get("stream") else f),
           "media.image.stream", "longer-prompt"),
    Mutant("videos passed over", without(lambda i, k, part: part["type"] == "video_url"), "media.video",
           "longer-prompt"),
    Mutant("recordings passed over", without(lambda i, k, part: part["type"] == "audio_url"), "media.audio",
           "longer-prompt"),
    Mutant("recordings in Base64 passed over", without(lambda i, k, part: part["type"] == "input_audio"),
           "media.input-audio", "longer-prompt"),
    Mutant("images that are strings passed over", without(lambda i, k, part: isinstance(part.get("image_url"), str)),
           "media.image.string", "longer-prompt"),
    Mutant("only the first medium of a turn seen", without(lambda i, k, part: k > 0), "media.image.several",
           "longer-prompt"),
    Mutant("media of earlier turns forgotten", without(lambda i, k, part: i == 0), "media.image.history",
           "longer-prompt"),
    Mutant("one kind of media seen at a time", without(lambda i, k, part: part["type"] != "image_url"),
           "media.kinds.image-audio", "longer-prompt"),
    Mutant("media that are not counted", _uncounted, "media.video.stream", "longer-prompt"),
    Mutant("another number of tokens in another form", on_request(_strings_twice), "media.image.same-in-all-forms",
           "same-usage"),
)  # fmt: skip


def _kept_all(fields: Json) -> Json:
    return {**fields, "messages": [_kept(0, one, lambda i, k, part: True) for one in fields["messages"]]}


TAKEN: Final = (
    Mutant("damaged images taken", _taking(lambda part: part["type"] == "image_url" and _is_short(part)),
           "media.image.cut-off", "status"),
    Mutant("damaged images taken in streams", accepting(lambda f: bool(f.get("stream")) and any(map(_is_short,
           _parts(f))), messages=HELLO), "media.image.cut-off.stream", "status"),
    Mutant("text taken for an image", _taking(lambda part: _url(part).endswith("VGhpcyBpcyB0ZXh0Lg==")),
           "media.image.no-image", "status"),
    Mutant("a recording taken for an image", _taking(lambda part: "image/png;base64,UklGR" in _url(part)),
           "media.image.sound", "status"),
    Mutant("any label taken", _taking(lambda part: part["type"] == "image_url" and "audio/mpeg" in _url(part)),
           "media.image.label-of-another-kind", "status"),
    Mutant("damaged videos taken", _taking(lambda part: part["type"] == "video_url" and len(_url(part)) < 1500),
           "media.video.cut-off", "status"),
    Mutant("playlists taken for videos", _taking(lambda part: "I0VYVE0zV" in _url(part)), "media.video.playlist",
           "status"),
    Mutant("empty recordings taken", _taking(lambda part: part["type"] == "audio_url" and _is_short(part)),
           "media.audio.cut-off", "status"),
    Mutant("one damaged image of several left out", without(lambda i, k, part: _is_short(part)),
           "media.image.one-of-several", "status"),
    Mutant("more media than twenty taken", accepting(lambda f: len(_parts(f)) > NUM_MOST, messages=HELLO),
           "media.kinds.too-many", "status"),
)  # fmt: skip

REFUSED: Final = (
    Mutant("bare Base64 refused", _refusing(lambda part: _url(part).startswith("/9j/")), "media.image.bare-base64",
           "status"),
    Mutant("JPEGs refused", _refusing(lambda part: "image/jpeg" in _url(part)), "media.image.jpeg", "status"),
    Mutant("a label that is not quite right refused", _refusing(lambda part: "image/jpeg;base64,iVBOR" in _url(part)),
           "media.image.other-label", "status"),
    Mutant("WMV refused", _refusing(lambda part: "x-ms-wmv" in _url(part)), "media.video.wmv", "status"),
    Mutant("FLAC refused", _refusing(lambda part: "audio/flac" in _url(part)), "media.audio.flac", "status"),
    Mutant("formats in capitals refused", _refusing(lambda part: part.get("input_audio", {}).get("format") == "WAV"),
           "media.input-audio.capitals", "status"),
    Mutant("twenty media refused", refusing(lambda f: len(_parts(f)) == NUM_MOST, "messages"), "media.kinds.most",
           "status"),
    Mutant("several kinds in one message refused", refusing(lambda f: len({part["type"] for part in _parts(f)}) > 1,
           "messages[0].content[1]"), "media.kinds.image-video", "status"),
    Mutant("damaged media that are the server's fault", _broken_media_are_our_fault, "media.image.cut-off-jpeg",
           "status"),
    Mutant("another part named", _first_part_named, "media.image.in-history", "refusal-names-place"),
    Mutant("no part named", _nothing_named, "media.input-audio.no-recording", "refusal-names-field"),
)  # fmt: skip

MUTANTS: Final = (*IGNORED, *TAKEN, *REFUSED)

"""Media that do not fit their model, their shape or their places are refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mindserve_engine.admission import check_request
from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import Capability, EngineInfo, GenerationRequest, MediaItem, MediaKind, MediaModel

IMAGE, VIDEO, AUDIO = 7, 8, 9
SEEING = MediaModel(
    image_token_id=IMAGE,
    video_token_id=VIDEO,
    patch_size=2,
    merge_size=2,
    frames_per_patch=2,
    min_pixels=16,
    max_pixels=128,
)
HEARING = MediaModel(audio_token_id=AUDIO, sample_rate=16_000, samples_per_frame=160, max_samples=1600)


def info(media: MediaModel | None) -> EngineInfo:
    capabilities = frozenset({Capability.MEDIA} if media else ())
    return EngineInfo(
        model_type="any", vocab_size=10, max_context=99, max_prompt_tokens=90, capabilities=capabilities, media=media
    )


def item(kind: MediaKind, start: int, num_tokens: int, *shape: int, **fields: Any) -> MediaItem:
    num_bytes = 4 if kind is MediaKind.AUDIO else 1
    for side in shape:
        num_bytes *= max(side, 0)
    given = {"data": bytes(num_bytes), "digest": bytes(32), **fields}
    return MediaItem(kind=kind, start=start, num_tokens=num_tokens, shape=shape, **given)


IMAGE_ITEM = item(MediaKind.IMAGE, 1, 2, 4, 8, 3)
VIDEO_ITEM = item(MediaKind.VIDEO, 4, 2, 3, 4, 4, 3, seconds_per_frame=0.5)
PROMPT = [0, IMAGE, IMAGE, 0, VIDEO, VIDEO, 0]


def request(prompt: list[int], *media: MediaItem) -> GenerationRequest:
    return GenerationRequest(request_id="r", prompt_token_ids=prompt, max_tokens=1, media=media)


def changed(item: MediaItem, **fields: Any) -> MediaItem:
    return msgspec.structs.replace(item, **fields)


def refusal(asked: GenerationRequest, media: MediaModel | None) -> tuple[str, str]:
    with pytest.raises(RequestInvalid) as caught:
        check_request(asked, info(media))
    return caught.value.field, caught.value.reason


def test_what_fits_is_taken() -> None:
    check_request(request(PROMPT, IMAGE_ITEM, VIDEO_ITEM), info(SEEING))
    check_request(request([IMAGE, IMAGE, VIDEO, VIDEO], *_moved(0, 2)), info(SEEING))
    check_request(request([0, AUDIO, AUDIO], item(MediaKind.AUDIO, 1, 2, 1000)), info(HEARING))
    thin = item(MediaKind.IMAGE, 0, 10, 4, 40, 3)
    check_request(request([IMAGE] * 10, thin), info(SEEING))


def _moved(*starts: int) -> list[MediaItem]:
    return [changed(one, start=start) for one, start in zip((IMAGE_ITEM, VIDEO_ITEM), starts, strict=True)]


@pytest.mark.parametrize(
    ("samples", "num_tokens"), [(1, 0), (320, 0), (321, 1), (480, 1), (640, 1), (961, 2), (480_000, 750)]
)
def test_tokens_of_a_recording(samples: int, num_tokens: int) -> None:
    """Two frames less than a step of the pooling give none."""
    assert HEARING.num_tokens(MediaKind.AUDIO, (samples,)) == num_tokens


@pytest.mark.parametrize(
    ("media", "words"),
    [
        ([changed(IMAGE_ITEM, shape=(4, 8))], "has the shape (4, 8), of kind image it must be (height, width, 3)"),
        ([changed(IMAGE_ITEM, shape=(4, 0, 3))], "has the shape"),
        ([changed(IMAGE_ITEM, shape=(4, 8, 4))], "has the shape"),
        ([changed(IMAGE_ITEM, data=bytes(95))], "has 95 bytes of data, its shape (4, 8, 3) needs 96"),
        ([changed(IMAGE_ITEM, digest=b"")], "has a digest of 0 bytes"),
        ([item(MediaKind.IMAGE, 1, 2, 6, 8, 3)], "is 6 x 8 pixels, both must be multiples of 4"),
        ([item(MediaKind.IMAGE, 1, 12, 12, 16, 3)], "has 192 pixels, the model takes 128"),
        ([changed(IMAGE_ITEM, num_tokens=1)], "has 1 tokens, its shape (4, 8, 3) gives 2"),
        ([changed(IMAGE_ITEM, start=2)], "needs its placeholder 7 at 2..3, at 3 stands 0"),
        ([changed(IMAGE_ITEM, start=-1)], "starts at -1, the item before it ends at 0"),
        ([changed(IMAGE_ITEM, start=6)], "ends at 8, the prompt at 7"),
        ([item(MediaKind.AUDIO, 1, 2, 800)], "is of kind audio, this model takes: image, video"),
    ],
)
def test_an_item_that_does_not_fit_is_named(media: list[MediaItem], words: str) -> None:
    field, reason = refusal(request(PROMPT, *media, VIDEO_ITEM), SEEING)
    assert (field, words in reason) == ("media[0]", True), reason


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), 1e6])
def test_time_between_frames(seconds: float) -> None:
    field, reason = refusal(request(PROMPT, IMAGE_ITEM, changed(VIDEO_ITEM, seconds_per_frame=seconds)), SEEING)
    assert (field, "s between frames" in reason) == ("media[1]", True)


def test_items_out_of_order_or_on_top_of_each_other() -> None:
    assert refusal(request(PROMPT, VIDEO_ITEM, IMAGE_ITEM), SEEING)[0] == "media[1]"
    assert refusal(request(PROMPT, IMAGE_ITEM, IMAGE_ITEM), SEEING)[0] == "media[1]"


@pytest.mark.parametrize("media", [[], [IMAGE_ITEM], [VIDEO_ITEM]])
def test_placeholders_without_an_item(media: list[MediaItem]) -> None:
    field, reason = refusal(request(PROMPT, *media), SEEING)
    assert (field, "placeholders of kind" in reason) == ("media", True)


def test_too_long_or_too_short_a_recording() -> None:
    assert "has 1601 samples" in refusal(request([AUDIO] * 4, item(MediaKind.AUDIO, 0, 5, 1601)), HEARING)[1]
    assert "at least 1 is needed" in refusal(request([AUDIO], item(MediaKind.AUDIO, 0, 0, 300)), HEARING)[1]


def test_a_model_of_text_alone() -> None:
    assert refusal(request(PROMPT, IMAGE_ITEM), None) == ("media", "is given, but this model takes text alone")
    check_request(request(PROMPT), info(None))

"""M-RoPE positions: transformers' own under its rule, and worked by hand under the rule of the models' training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from transformers import Qwen2_5_VLConfig, Qwen2VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

from mindserve_engine.media.positions import prompt_positions
from mindserve_engine.native.media.prompt import PromptMedia
from mindserve_engine.types import GenerationRequest, MediaItem, MediaKind
from tests import media_prompts as given
from tests import tiny_media_models as tiny


def item(kind: MediaKind, start: int, frames: int, rows: int, columns: int, seconds: float = 0.0) -> MediaItem:
    shape = (rows * 28, columns * 28, 3)
    return MediaItem(
        kind=kind,
        start=start,
        num_tokens=(-(-frames // 2) if kind is MediaKind.VIDEO else 1) * rows * columns,
        shape=(frames, *shape) if kind is MediaKind.VIDEO else shape,
        data=b"",
        digest=b"",
        seconds_per_frame=seconds,
    )


def placed(gaps: list[int], drawn_items: list[tuple[MediaKind, int, int, int, float]]) -> tuple[int, list[MediaItem]]:
    """Number of tokens and items, with so much text before each and behind the last."""
    at, items = 0, []
    for gap, one in zip(gaps, drawn_items, strict=False):
        kind, frames, rows, columns, seconds = one
        items.append(item(kind, at + gap, frames, rows, columns, seconds))
        at = items[-1].start + items[-1].num_tokens
    return at + gaps[len(drawn_items)], items


SHAPES = st.tuples(
    st.sampled_from([MediaKind.IMAGE, MediaKind.VIDEO]),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 5),
    st.floats(0.01, 20),
)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
@settings(max_examples=60, deadline=None)
@drawn(shapes=st.lists(SHAPES, min_size=1, max_size=4), gaps=st.lists(st.integers(1, 6), min_size=5, max_size=5))
def test_by_the_longer_side_they_are_those_of_transformers(
    name: str, shapes: list[tuple[MediaKind, int, int, int, float]], gaps: list[int]
) -> None:
    num_tokens, items = placed(gaps, shapes)
    prompt = given.Prompt([0] * num_tokens, tuple(items))
    kinds = {kind: [one for one in items if one.kind is kind] for kind in MediaKind}
    found = prompt_positions(num_tokens, items, given.rule(name, is_by_side=True))
    more = {"second_per_grid_ts": torch.tensor([one.seconds_per_frame * 2 for one in kinds[MediaKind.VIDEO]])}
    expected, _ = reference(name).get_rope_index(
        torch.tensor([prompt.token_ids]),
        given.token_types(prompt),
        image_grid_thw=torch.tensor([given.grid(one) for one in kinds[MediaKind.IMAGE]]),
        video_grid_thw=torch.tensor([given.grid(one) for one in kinds[MediaKind.VIDEO]]),
        **(more if name == "qwen2_5_vl" else {}),
    )
    assert np.array_equal(found, expected[:, 0].numpy())


def reference(name: str) -> torch.nn.Module:
    """transformers' model without weights: it knows how to count."""
    kind, config = {"qwen2_vl": (Qwen2VLModel, Qwen2VLConfig), "qwen2_5_vl": (Qwen2_5_VLModel, Qwen2_5_VLConfig)}[name]
    settings = config()
    if name == "qwen2_5_vl":
        settings.vision_config.tokens_per_second = tiny.TOKENS_PER_SECOND
    model = kind.__new__(kind)
    torch.nn.Module.__init__(model)
    model.config = settings
    return model


def test_behind_the_largest_coordinate() -> None:
    """Two tokens of text, a video of 4 steps of 1 x 2 tokens, text: by hand."""
    items = [item(MediaKind.VIDEO, 2, 8, 1, 2)]
    found = prompt_positions(12, items, given.rule("qwen2_vl"))
    assert found.tolist() == [
        [0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7],
        [0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 6, 7],
        [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 6, 7],
    ]
    by_side = prompt_positions(12, items, given.rule("qwen2_vl", is_by_side=True))
    assert by_side[:, 10:].tolist() == [[4, 5]] * 3


def test_time_of_a_video_is_counted_in_parts_of_a_second() -> None:
    """2 a second, 1.5 s between steps."""
    found = prompt_positions(4, [item(MediaKind.VIDEO, 1, 4, 1, 1, seconds=0.75)], given.rule("qwen2_5_vl"))
    assert found.tolist() == [[0, 1, 4, 5], [0, 1, 1, 5], [0, 1, 1, 5]]


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("length", [0, 1, 3, 9])
def test_generated_tokens_count_on(start: int, length: int) -> None:
    request = GenerationRequest(
        request_id="r", prompt_token_ids=[0] * 5, max_tokens=9, media=(item(MediaKind.IMAGE, 1, 1, 1, 3),)
    )
    media = PromptMedia.of(request, given.rule("qwen2_vl"))
    assert media is not None
    whole = np.array([[0, 1, 1, 1, *range(4, 20)], [0, 1, 1, 1, *range(4, 20)], [0, 1, 2, 3, *range(4, 20)]])
    found = media.positions_of(start, start + length)
    assert found is not None
    assert np.array_equal(found, whole[:, start : start + length])


@pytest.mark.parametrize("behind", range(3))
@pytest.mark.parametrize("is_by_side", [False, True])
def test_generated_tokens_count_as_text_of_the_prompt_would(behind: int, is_by_side: bool) -> None:
    """Behind a video longer than its sides, and few or no tokens after it."""
    items, rule = (item(MediaKind.VIDEO, 2, 8, 1, 2),), given.rule("qwen2_vl", is_by_side=is_by_side)
    num_tokens = 10 + behind
    request = GenerationRequest(request_id="r", prompt_token_ids=[0] * num_tokens, max_tokens=9, media=items)
    media = PromptMedia.of(request, rule)
    assert media is not None
    found = media.positions_of(0, num_tokens + 6)
    assert found is not None
    assert np.array_equal(found, prompt_positions(num_tokens + 6, items, rule))

"""Patches equal those of transformers' processors to the bit."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from mindserve_engine.media.patches import Normalisation, Patches, PatchShape
from mindserve_engine.types import MediaModel
from tests import media_prompts as given
from tests import tiny_media_models as tiny

SHAPE = PatchShape(14, 2, 2)
NORMALISATION = Normalisation(1 / 255, tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD))
MODEL = MediaModel(image_token_id=1, video_token_id=2, patch_size=14, merge_size=2, frames_per_patch=2)


def ours(values: np.ndarray) -> np.ndarray:
    patches = Patches(given.item(values, MODEL), SHAPE, NORMALISATION)
    bands = [band for step in range(patches.num_steps) for band in patches.bands(step)]
    return np.concatenate(bands)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 5), (8, 8), (1, 40)])
def test_images(rows: int, columns: int) -> None:
    values = given.picture(rows, columns, seed=rows)
    expected = tiny.processor("qwen2_vl")(images=[values], do_resize=False, return_tensors="np")
    assert np.array_equal(ours(values), expected["pixel_values"])
    assert expected["image_grid_thw"].tolist() == [[1, rows * 2, columns * 2]]


@pytest.mark.parametrize("frames", [1, 2, 5, 8])
def test_videos(frames: int) -> None:
    """The processor's class needs torchvision; its arithmetic does not."""
    values = given.film(frames, 3, 2, seed=frames)
    cut = _lifted("models/qwen2_vl/video_processing_qwen2_vl.py", "Qwen2VLVideoProcessor", "patchify")
    fuse = _lifted("image_processing_backends.py", "TorchvisionBackend", "_fuse_mean_std_and_rescale_factor")
    mean, deviation, _ = fuse(None, True, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD, True, 1 / 255)
    pixels = torch.from_numpy(values).permute(0, 3, 1, 2).float()
    # what torchvision's normalize does with these arguments
    normalised = pixels.sub_(mean[:, None, None]).div_(deviation[:, None, None])
    expected, *grid = cut(None, normalised[None], 14, 2, 2)
    assert np.array_equal(ours(values), expected[0].numpy())
    assert grid == [-(-frames // 2), 6, 4]
    assert np.array_equal(given.video_patches(values), expected[0].numpy())


def _lifted(file: str, owner: str, name: str) -> Callable[..., Any]:
    """A method of transformers as a function, without its module's imports."""
    source = (Path(inspect.getfile(transformers)).parent / file).read_text("utf-8")
    of_class = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == owner)
    method = next(node for node in of_class.body if isinstance(node, ast.FunctionDef) and node.name == name)
    lines = source.splitlines()[method.lineno - 1 : method.end_lineno]
    names: dict[str, Any] = {"torch": torch, "Optional": dict}
    exec("from __future__ import annotations\n" + textwrap.dedent("\n".join(lines)), names)
    function: Callable[..., Any] = names[name]
    return function

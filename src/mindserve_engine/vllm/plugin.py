"""What every process of vLLM's loads (its general plug-ins), on every machine: it does something where an engine of
ours serves a model with media, and nothing else.

vLLM makes a processor of transformers' for such a model in each of its processes, to ask it how large items become.
Here the server decides that; so vLLM is told, and needs none of the packages that transformers' processors want.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import partial
from typing import Any, Final

from mindserve_engine.vllm.media import FAMILY

_MODELS: Final = {
    "qwen2_vl": "vllm.model_executor.models.qwen2_vl:Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "vllm.model_executor.models.qwen2_5_vl:Qwen2_5_VLForConditionalGeneration",
    "qwen2_audio": "vllm.model_executor.models.qwen2_audio:Qwen2AudioForConditionalGeneration",
}
_WITH_TORCHVISION: Final = "transformers.models.qwen2_vl.image_processing_qwen2_vl"
_WITH_PILLOW: Final = "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl"
"""The same functions, without torchvision."""
_PLACE: Final = "_processor_factory"
"""Where vLLM keeps the makers of a model's processor."""
_EXAMPLE: Final = "get_dummy_mm_inputs"


def register() -> None:
    """May be called again. By vLLM in its processes, and before they start in the server's."""
    place = _MODELS.get(os.environ.get(FAMILY, ""))
    if place is not None:
        _do_without_torchvision()
        module, _, name = place.partition(":")
        _replace_processor(getattr(importlib.import_module(module), name))


def _do_without_torchvision() -> None:
    """vLLM's models import a function of sizes from a module that imports torchvision."""
    if importlib.util.find_spec("torchvision") is None and importlib.util.find_spec(_WITH_PILLOW) is not None:
        sys.modules.setdefault(_WITH_TORCHVISION, importlib.import_module(_WITH_PILLOW))


def _replace_processor(model: Any) -> None:
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.processing import BaseMultiModalProcessor

    from mindserve_engine.vllm.media_processor import OurInfo, OurProcessor

    theirs = vars(model)[_PLACE]
    if issubclass(theirs.info, OurInfo):
        return
    info = type(f"Our{theirs.info.__name__}", (OurInfo, theirs.info), {})
    processor = type(f"Our{theirs.processor.__name__}", (OurProcessor, theirs.processor), {})
    delattr(model, _PLACE)  # else the registry warns
    MULTIMODAL_REGISTRY.register_processor(processor, info=info, dummy_inputs=theirs.dummy_inputs)(model)
    if not hasattr(BaseMultiModalProcessor, _EXAMPLE):  # vLLM 0.27 and before
        setattr(MULTIMODAL_REGISTRY, _EXAMPLE, partial(_example, MULTIMODAL_REGISTRY))


def _example(registry: Any, model_config: Any, mm_counts: Any, *, processor: Any = None, **_options: Any) -> Any:
    """What vLLM's registry is asked for in releases whose processors are not asked themselves."""
    return getattr(processor or registry.create_processor(model_config), _EXAMPLE)(mm_counts)

"""The families of models that take media: how their towers are built, under which names their weights stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from transformers import WhisperFeatureExtractor
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder, Qwen2AudioMultiModalProjector
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from mindserve_engine.interface import EngineError
from mindserve_engine.media.facts import MediaFacts
from mindserve_engine.native.multimodal.audio import AudioTower
from mindserve_engine.native.multimodal.encoder import Tower, TowerEncoder
from mindserve_engine.native.multimodal.vision import VisionTower
from mindserve_engine.native.weights.source import WeightSource
from mindserve_engine.options import EngineOptions

_BY_SIDE: Final = "side"
_RULES: Final = ("extent", _BY_SIDE)


def load_encoder(
    facts: MediaFacts, options: EngineOptions, source: WeightSource, *, hidden: int, dtype: torch.dtype
) -> TowerEncoder:
    """The model's tower with its weights, in ``dtype``. ``hidden`` is the language model's width.

    Raises ``EngineError`` when a weight is missing."""
    if options.media_positions not in _RULES:
        raise EngineError(f"media_positions: '{options.media_positions}' is none of {', '.join(_RULES)}")
    rule = None if facts.rule is None else replace(facts.rule, is_by_side=options.media_positions == _BY_SIDE)
    tower = _BUILDERS[facts.config.model_type](facts, source, dtype)
    return TowerEncoder(tower, rule=rule, hidden=hidden, dtype=dtype)


def _vision(kind: Any) -> Callable[[MediaFacts, WeightSource, torch.dtype], Tower]:
    def build(facts: MediaFacts, source: WeightSource, dtype: torch.dtype) -> Tower:
        assert facts.patches is not None
        assert facts.normalisation is not None
        module = _module(kind, facts.config.vision_config, source, "visual.", dtype)
        return VisionTower(module, facts.patches, facts.normalisation, dtype=dtype)

    return build


def _audio(facts: MediaFacts, source: WeightSource, dtype: torch.dtype) -> Tower:
    config = facts.config.audio_config
    if config.scale_embedding:
        raise EngineError("scale_embedding of a qwen2_audio model is not supported: transformers does not apply it")
    module = _module(Qwen2AudioEncoder, config, source, "audio_tower.", dtype)
    projector = _module(Qwen2AudioMultiModalProjector, facts.config, source, "multi_modal_projector.", dtype)
    return AudioTower(module, projector, WhisperFeatureExtractor(**facts.processor), dtype=dtype)


def _module(kind: Any, config: Any, source: WeightSource, prefix: str, dtype: torch.dtype) -> Any:
    """One of transformers' modules with the weights of the source."""
    with torch.device("meta"):  # without numbers: there is no time to draw random ones
        module = kind(config)
    weights = {name: source.tensor(prefix + name, tuple(one.shape), dtype) for name, one in module.named_parameters()}
    module.load_state_dict(weights, assign=True)
    return module.eval().requires_grad_(requires_grad=False)


_BUILDERS: Final[dict[str, Callable[[MediaFacts, WeightSource, torch.dtype], Tower]]] = {
    "qwen2_vl": _vision(Qwen2VisionTransformerPretrainedModel),
    "qwen2_5_vl": _vision(Qwen2_5_VisionTransformerPretrainedModel),
    "qwen2_audio": _audio,
}

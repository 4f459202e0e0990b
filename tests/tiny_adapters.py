"""LoRA adapters with random weights, written by PEFT, and the models they give when they are merged."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def load(model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")


def write(model: Path, folder: Path, *, seed: int, model_class: Callable[[Path], Any] = load, **settings: Any) -> Any:
    """Write an adapter of the model at ``model`` into ``folder``; returns the merged model, float32."""
    base = model_class(model)
    config = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": ALL_LINEAR, **settings})
    with warnings.catch_warnings():
        # PEFT 0.21 reads a property that transformers 5.24 has renamed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        adapted = get_peft_model(base, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    adapted.save_pretrained(str(folder))
    return adapted.merge_and_unload().eval()

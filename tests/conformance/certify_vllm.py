"""Runs the conformance suite on our server over vLLM, in vLLM's environment: part of ``make test-vllm``.

``python -m tests.conformance.certify_vllm [--out DIR]``: the default model, written out as a folder, in both dialects.
Exits with the worst of the suite's statuses.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from conformance.files import PROFILES
from tests.conformance.certify import COMPUTED_CASES, LIKELY_TOKEN, Setup, certify
from tests.default_model import default_model_file

NAME: Final = "SmolLM2-135M-Instruct"
MAX_CONTEXT: Final = 2048
MAX_TOKENS: Final = 64
"""Of an answer: nothing is proved by longer ones."""
KV_GB: Final = 1
STALL_S: Final = 300
"""A step takes as long as a CPU that others use needs for it; how a stall is noticed is proved elsewhere."""


def write_default_model(folder: Path) -> Path:
    """The default model as transformers has it: vLLM reads no GGUF files. In float32, which is faster on processors
    without arithmetic for bfloat16."""
    file = default_model_file()
    place: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    dense = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32, quantization_config=dense)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**place).save_pretrained(folder)
    return folder


def vllm_setup(folder: Path, model: Path, dialect: str, *only: str) -> Setup:
    """``folder`` takes its files."""
    config, profile = folder / "config.json", folder / "profile.yaml"
    served = {"modelName": NAME, "modelWeightPath": str(model), "backendType": "vllm"}
    deploy = {"maxSeqLen": MAX_CONTEXT, "ModelConfig": [served | {"npuMemSize": KV_GB, "dtype": "float32"}]}
    schedule = {"maxIterTimes": MAX_TOKENS}
    backend = {
        "ModelDeployConfig": deploy,
        "ScheduleConfig": schedule,
        "VllmConfig": {"engineArgs": {"enforce_eager": True}, "stallTimeout": STALL_S},
    }
    config.write_text(json.dumps({"ServerConfig": {"openAiSupport": dialect}, "BackendConfig": backend}), "utf-8")
    shipped = yaml.safe_load((PROFILES / f"mindserve{'' if dialect == 'vllm' else '-openai'}.yaml").read_text("utf-8"))
    limits = {**shipped["limits"], "max_tokens": MAX_TOKENS, "max_prompt_tokens": MAX_CONTEXT - 1}
    if dialect == "openai":
        limits["likely_token"] = LIKELY_TOKEN
    profile.write_text(yaml.safe_dump({**shipped, "limits": limits}), "utf-8")
    return Setup(f"vllm, {dialect}", ["--config", str(config)], NAME, only, str(profile))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".conformance"), help="where the reports go")
    out: Path = parser.parse_args(arguments).out
    statuses = []
    with tempfile.TemporaryDirectory() as folder:
        model = write_default_model(Path(folder, "model"))
        for dialect, only in (("vllm", ()), ("openai", COMPUTED_CASES)):
            place = Path(folder, dialect)
            place.mkdir()
            setup = vllm_setup(place, model, dialect, *only)
            print(f"== mindserve, {setup.name}", flush=True)
            statuses.append(certify(setup, out / setup.name.replace(", ", "-")))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())

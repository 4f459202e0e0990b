"""Two machines on loopback: this process is the one that serves, another process is the further one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from mindserve.cli.engine_options import choose_engine
from mindserve.config.load import load_config
from mindserve.config.overrides import Overrides
from mindserve_engine.options import EngineOptions
from tests.engine.scale.place import CONTEXT

ADDRESS: Final = "127.0.0.1"


def write_config(folder: Path, model: Path, *, port: int | None = None, **shape: int) -> Path:
    """``shape``: tp, pp, dp. ``port``: at which a further machine joins; None: there is none."""
    joined: dict[str, Any] = {"multiNodesInferEnabled": True, "multiNodesInferPort": port}
    content = {
        "BackendConfig": {
            **(joined if port is not None else {}),
            "VllmConfig": {
                **({"nodes": [ADDRESS, ADDRESS]} if port is not None else {}),
                "engineArgs": {"enforce_eager": True},
                "onEngineFailure": "exit",
            },
            "ModelDeployConfig": {
                "maxSeqLen": CONTEXT,
                "ModelConfig": [
                    {"modelWeightPath": str(model), "backendType": "vllm", "dtype": "float32", "npuMemSize": 1, **shape}
                ],
            },
            "ScheduleConfig": {"maxBatchSize": 4, "maxPrefillTokens": 256, "cacheBlockSize": 32},
        }
    }
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def options_of(config: Path, model: Path) -> EngineOptions:
    return choose_engine(load_config(config, Overrides(), {}), model).options


@contextlib.contextmanager
def command(*words: object) -> Iterator[psutil.Popen]:
    """``mindserve`` in a session of its own, all of which is gone afterwards."""
    process = psutil.Popen(
        [sys.executable, "-m", "mindserve", *map(str, words)], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        kill_all(process)
        process.wait()
        process.stdout.close()


def kill_all(process: psutil.Popen) -> None:
    """The process and all below it, as a machine's power cut would."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

"""Two machines on loopback: this process is the one that serves, another process is the further one."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from mindserve.cli.engine_options import choose_engine
from mindserve.config.load import load_config
from mindserve.config.overrides import Overrides
from mindserve_engine.options import EngineOptions
from tests.engine.scale.place import CONTEXT

ADDRESS: Final = "127.0.0.1"


def write_config(
    folder: Path,
    model: Path,
    *,
    port: int | None = None,
    http_port: int = 1025,
    settings: Mapping[str, object] | None = None,
    **shape: int,
) -> Path:
    """``shape``: tp, pp, dp. ``port``: at which a further machine joins; None: there is none. ``http_port``: at which
    it looks for the serving one. ``settings``: more of VllmConfig."""
    joined: dict[str, Any] = {"multiNodesInferEnabled": True, "multiNodesInferPort": port}
    content = {
        "ServerConfig": {"port": http_port},
        "BackendConfig": {
            **(joined if port is not None else {}),
            "VllmConfig": {
                **({"nodes": [ADDRESS, ADDRESS]} if port is not None else {}),
                "engineArgs": {"enforce_eager": True},
                "onEngineFailure": "exit",
                **(settings or {}),
            },
            "ModelDeployConfig": {
                "maxSeqLen": CONTEXT,
                "ModelConfig": [
                    {"modelWeightPath": str(model), "backendType": "vllm", "dtype": "float32", "npuMemSize": 1, **shape}
                ],
            },
            "ScheduleConfig": {"maxBatchSize": 4, "maxPrefillTokens": 256, "cacheBlockSize": 32},
        },
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


def until_ready(server: psutil.Popen) -> str:
    """The server's address. Blocking. Fails when it ends instead."""
    url = next((line.removeprefix("ready: ").strip() for line in server.stdout if line.startswith("ready: ")), None)
    assert url is not None, f"it ended with {server.wait(60)}"
    return str(url)


def ask_over_http(url: str, max_tokens: int) -> int:
    """The status of an answer of so many tokens; 0: the connection was lost. Blocking."""
    body = {"model": "model", "messages": [{"role": "user", "content": "a"}], "max_tokens": max_tokens}
    content = json.dumps(body | {"ignore_eos": True}).encode()
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", content, {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def until_running(url: str) -> None:
    """Until the engine has a request. Blocking."""
    while True:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            figures = answer.read().decode()
        if re.search(r"^num_requests_running\S* [1-9]", figures, re.MULTILINE):
            return


def below(server: psutil.Popen) -> list[psutil.Process]:
    """What it has started, and what that has."""
    with contextlib.suppress(psutil.Error):
        found: list[psutil.Process] = server.children(recursive=True)
        return found
    return []


def named_below(server: psutil.Popen, part: str) -> list[psutil.Process]:
    found = []
    for one in below(server):
        with contextlib.suppress(psutil.Error):
            if part in one.name():
                found.append(one)
    return found


def living(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that have not ended by then. Blocking."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def kill_all(process: psutil.Popen) -> None:
    """The process and all below it, as a machine's power cut would."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

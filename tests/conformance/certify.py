"""Starts our own server as an operator would and runs the suite on it: ``make conformance``.

``python -m tests.conformance.certify [--out DIR]``: with the scripted engine, which takes media, once more with
``fullTextEnabled``, as a model that thinks, and in the ``openai`` dialect behind an API key, and there as a model of
text alone; then with the default model, which is one, and whose answers in the ``openai`` dialect are asked for where
its arithmetic bears upon them. Exits with the worst of the suite's statuses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from conformance.files import PROFILES
from conformance.script import script_text
from mindserve.config.packaged import DEFAULT_MODEL

ROOT: Final = Path(__file__).parents[2]
MAX_CONTEXT: Final = 1 << 20
MAX_TOKENS: Final = 512
"""maxIterTimes of an empty config.json."""
LIKELY_TOKEN: Final = 33
"""The token 1, with which the default model begins its list of colours."""
COMPUTED_CASES: Final = ("openai.logit_bias.*", "openai.stream*", "openai.several-greedy", "openai.no-effect")
"""Those of the ``openai`` dialect that the model's arithmetic bears upon."""
FULL_TEXT_CASES: Final = ("golden.*", "stream.*", "whole.*")
"""Those that streams of cumulative text bear upon."""


THINKING_CASES: Final = {"vllm": ("*.reasoning*", "golden.stream-reasoning"), "openai": ("*.reasoning*",)}
"""Those that need a chain of thought, by dialect."""
MEDIA_CASES: Final = ("media.*", "feature.*", "rules.media-*", "request.image.*", "request.messages.content*")
"""Those that a model of text alone must refuse, or need not be asked."""
KEY: Final = "sk-conformance"
"""Of the server in the ``openai`` dialect."""


@dataclass(frozen=True)
class Setup:
    """A server of ours to certify."""

    name: str
    serve: list[str]
    """Arguments of ``mindserve serve``, but for the port."""
    model: str
    only: tuple[str, ...] = ()
    profile: str = "mindserve"


def scripted_setup(
    folder: Path,
    *,
    full_text: bool = False,
    thinks: bool = False,
    takes_media: bool = True,
    dialect: str = "vllm",
    key: str | None = None,
) -> Setup:
    """The scripted engine, an adapter beside it. ``folder`` takes its files; ``key``: what requests must give."""
    script = folder / "script.yaml"
    script.write_text(script_text(thinks=thinks, takes_media=takes_media), "utf-8")
    config = folder / "config.json"
    config.write_text(json.dumps(_config(script, folder, full_text=full_text, dialect=dialect)), "utf-8")
    name = "scripted" + ", full text" * full_text + ", thinking" * thinks + ", text alone" * (not takes_media)
    name += f", {dialect}" * (dialect != "vllm")
    only = FULL_TEXT_CASES if full_text else THINKING_CASES[dialect] if thinks else () if takes_media else MEDIA_CASES
    serve = ["--config", str(config), "--engine", "scripted"]
    if key is not None:
        (folder / "keys").write_text(f"{key}\n", "utf-8")
        (folder / "keys").chmod(0o600)
        serve += ["--api-key-file", str(folder / "keys")]
    profile = folder / "profile.yaml"
    profile.write_text(yaml.safe_dump(_profile(dialect, key)), "utf-8")
    return Setup(name, serve, "scripted-model", only, str(profile))


def _profile(dialect: str, key: str | None) -> dict[str, Any]:
    """The shipped one, with the longest prompt that this server takes and the most tokens that it generates."""
    name = "mindserve" if dialect == "vllm" else f"mindserve-{dialect}"
    shipped: dict[str, Any] = yaml.safe_load((PROFILES / f"{name}.yaml").read_text("utf-8"))
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    limits = {**shipped["limits"], "max_prompt_tokens": MAX_CONTEXT - 1, "max_tokens": MAX_TOKENS}
    return {**shipped, "headers": headers, "limits": limits}


def _config(script: Path, folder: Path, *, full_text: bool, dialect: str) -> dict[str, Any]:
    deploy = {
        "maxSeqLen": MAX_CONTEXT,
        "ModelConfig": [{"modelName": "scripted-model", "modelWeightPath": str(script)}],
        "LoraModules": [{"name": "tuned", "path": str(folder), "baseModelName": "scripted-model"}],
    }
    server = {"fullTextEnabled": full_text, "openAiSupport": dialect}
    return {"ServerConfig": server, "BackendConfig": {"ModelDeployConfig": deploy}}


def default_setup(*only: str) -> Setup:
    """What ``make serve`` serves."""
    return Setup("default model", [], DEFAULT_MODEL.title, only)


def default_openai_setup(folder: Path, *only: str) -> Setup:
    """The same in the ``openai`` dialect."""
    config, profile = folder / "config.json", folder / "profile.yaml"
    config.write_text(json.dumps({"ServerConfig": {"openAiSupport": "openai"}}), "utf-8")
    shipped: dict[str, Any] = yaml.safe_load((PROFILES / "mindserve-openai.yaml").read_text("utf-8"))
    limits = {**shipped["limits"], "likely_token": LIKELY_TOKEN}
    profile.write_text(yaml.safe_dump({**shipped, "limits": limits}), "utf-8")
    return Setup("default model, openai", ["--config", str(config)], DEFAULT_MODEL.title, only, str(profile))


@contextmanager
def served(setup: Setup) -> Iterator[str]:
    """The URL of a server of that kind, on a free port."""
    command = [sys.executable, "-m", "mindserve", "serve", "--port", "0", "--log-level", "error", *setup.serve]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = next((line for line in server.stdout if line.startswith("ready: ")), None)
            if ready is None:
                raise SystemExit(f"the server ({setup.name}) ended before it was ready")
            yield ready.removeprefix("ready: ").strip()
        finally:
            server.terminate()
            server.communicate(timeout=60)


def certify(setup: Setup, out: Path) -> int:
    """Run the suite as a user does; its exit status. ``out`` takes the reports."""
    with served(setup) as url:
        command = [sys.executable, "-m", "conformance", "run", "--base-url", url, "--model", setup.model]
        command += ["--profile", setup.profile, "--out", str(out)]
        command += [word for pattern in setup.only for word in ("--only", pattern)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".conformance"), help="where the reports go")
    out: Path = parser.parse_args(arguments).out
    with tempfile.TemporaryDirectory() as folder:
        names = ("plain", "full", "thinking", "openai", "openai-thinking", "openai-text", "computed")
        folders = [Path(folder, name) for name in names]
        plain, full, thinking, openai, openai_thinking, openai_text, computed = folders
        for one in folders:
            one.mkdir()
        setups = [
            scripted_setup(plain),
            scripted_setup(full, full_text=True),
            scripted_setup(thinking, thinks=True),
            scripted_setup(openai, dialect="openai", key=KEY),
            scripted_setup(openai_thinking, dialect="openai", thinks=True),
            scripted_setup(openai_text, dialect="openai", takes_media=False),
            default_setup(),
            default_openai_setup(computed, *COMPUTED_CASES),
        ]
        statuses = []
        for setup in setups:
            print(f"== mindserve, {setup.name}", flush=True)
            statuses.append(certify(setup, out / setup.name.replace(", ", "-").replace(" ", "-")))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())

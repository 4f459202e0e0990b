"""Who may import whom: each contract of pyproject.toml breaks when it is violated, and what none of them can say."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "codegen", "conformance")

PLANTS = (
    ("server-layers", "src/mindserve/errors.py", "import mindserve.chat.stop"),
    ("server-layers", "src/mindserve/unplaced.py", ""),
    ("engine-layers", "src/mindserve_engine/types.py", "import mindserve_engine.interface"),
    ("engine-layers", "src/mindserve_engine/unplaced.py", ""),
    ("native-sides", "src/mindserve_engine/native/scheduler.py", "import mindserve_engine.native.runner"),
    ("native-sides", "src/mindserve_engine/native/unplaced.py", ""),
    ("suite-layers", "conformance/case.py", "import conformance.client"),
    ("suite-layers", "conformance/unplaced.py", ""),
    ("client-layers", "src/mindserve_client/sse.py", "import mindserve_client.stream"),
    ("client-layers", "src/mindserve_client/unplaced.py", ""),
    ("torch-importers", "src/mindserve_engine/native/scheduler.py", "import torch"),
    ("torch-importers", "src/mindserve_engine/native/unplaced.py", "from torch.nn import functional"),
    ("torch-importers", "conformance/rule_cases.py", "import torch"),
    ("torch-npu-in-one-place", "src/mindserve_engine/native/device/npu_graph.py", "import torch_npu"),
    ("torch-npu-in-one-place", "src/mindserve_engine/native/runner.py", "from torch_npu import npu"),
    ("torch-importers", "src/mindserve_engine/vllm/engine.py", "import torch"),
    ("vllm-in-its-engine", "src/mindserve_engine/native/process.py", "import vllm"),
    ("vllm-in-its-engine", "src/mindserve/cli/extras.py", "from vllm import SamplingParams"),
    ("torch-free-front", "src/mindserve/cli/extras.py", "import mindserve_engine.native.runner"),
    ("torch-free-front", "src/mindserve_engine/registry.py", "import mindserve_engine.vllm.running"),
    ("server-independent", "conformance/rule_cases.py", "import mindserve.errors"),
    ("server-independent", "src/mindserve/cli/extras.py", "import codegen.stamp"),
    ("server-independent", "codegen/stamp.py", "import conformance"),
    ("server-independent", "src/mindserve_client/sse.py", "import conformance.sse"),
    ("engine-independent", "conformance/rule_cases.py", "import mindserve_engine.types"),
    ("engine-independent", "src/mindserve_client/sse.py", "import mindserve_engine.types"),
    ("engine-below-server", "src/mindserve_engine/native/loop.py", "import mindserve.errors"),
    ("engine-border", "src/mindserve/chat/stop.py", "import mindserve_engine.admission"),
    ("engine-border", "src/mindserve/config/lower.py", "import mindserve_engine.options"),
    ("media-layers", "src/mindserve/chat/media/limits.py", "import mindserve.chat.media.refs"),
    ("media-layers", "src/mindserve/chat/media/unplaced.py", ""),
    ("fetching-in-one-place", "src/mindserve/chat/media/refs.py", "import httpcore2"),
    ("media-worker", "src/mindserve/chat/media/decoding/sizes.py", "import mindserve.chat.media.decoding.pool"),
    ("media-worker", "src/mindserve/chat/media/decoding/sniff.py", "import mindserve.observe"),
    ("media-worker", "src/mindserve/chat/media/decoding/decode_image.py", "import torch"),
    ("decoding-libraries", "src/mindserve/chat/media/decoding/pool.py", "import av"),
    ("decoding-libraries", "src/mindserve/chat/media/decoding/sizes.py", "from PIL import Image"),
    (
        "decoders-in-worker",
        "src/mindserve/chat/media/decoding/pool.py",
        "import mindserve.chat.media.decoding.decode_image",
    ),
    ("litestar-in-api", "src/mindserve/cli/extras.py", "import litestar"),
)
"""A contract, a file of the tree, and the line that must not stand in it; an empty line: the file must not be there."""

LIBRARIES = {
    "src/mindserve/api/_generated/*.py": {"msgspec"},
    "src/mindserve/config/_generated.py": {"pydantic"},
    "src/mindserve_client/_generated/*.py": {"pydantic", "typing_extensions"},
    "src/mindserve_client/**/*.py": {"httpx2", "pydantic", "typing_extensions"},
}
"""Code that keeps to few libraries, and those that it may import beside the standard one."""
OWN = ("mindserve.api._generated", "mindserve_client")
"""What that code may import of its own."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything the contracts speak of."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def _keeps(tree: Path, *contracts: str) -> tuple[bool, str]:
    """Whether the tree keeps the contracts (none: all of them), and what import-linter says."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    command += [word for contract in contracts for word in ("--contract", contract)]
    environ = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def test_the_tree_keeps_the_contracts(tree: Path) -> None:
    kept, said = _keeps(tree)
    assert kept, said


def test_every_contract_is_proved() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == {contract for contract, _, _ in PLANTS}


@pytest.mark.parametrize(("contract", "name", "line"), PLANTS)
def test_a_violation_breaks_its_contract(tree: Path, contract: str, name: str, line: str) -> None:
    file = tree / name
    before = file.read_text("utf-8") if file.exists() else None
    file.write_text(f"{before or ''}\n{line}\n", "utf-8")
    try:
        kept, said = _keeps(tree, contract)
    finally:
        if before is None:
            file.unlink()
        else:
            file.write_text(before, "utf-8")
    assert not kept
    assert "BROKEN" in said, said


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def _foreign(source: str, libraries: set[str]) -> list[str]:
    """Imports beyond ``libraries``, the standard library and siblings."""
    names = [name for name in _imported(source) if not f"{name}.".startswith(tuple(f"{own}." for own in OWN))]
    return [name for name in names if name.partition(".")[0] not in {*libraries, *sys.stdlib_module_names}]


@pytest.mark.parametrize("pattern", LIBRARIES)
def test_generated_code_and_the_sdk_import_few_libraries(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    assert {file.name: _foreign(file.read_text("utf-8"), LIBRARIES[pattern]) for file in files} == {
        file.name: [] for file in files
    }


def test_what_such_code_may_not_import_is_found() -> None:
    source = (
        "import os, mindserve.errors\nfrom pydantic import v1\nfrom . import models\ndef f():\n    import msgspec.json"
    )
    assert _foreign(source, {"msgspec"}) == ["mindserve.errors", "pydantic", "."]

"""The deployment files under the linters of those who read them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = "1.34"
"""The oldest that has all that the manifests use: the preStop hook that sleeps is stable since then."""
MAX_EXPOSURE = 20
"""Of systemd's own scale, where 100 is no hardening."""


def run(tool: str, *words: object) -> str:
    """The output of a tool of the development environment, or of the system, which must end well."""
    own = Path(sys.executable).parent / tool
    command = str(own) if own.exists() else shutil.which(tool)
    assert command, f"{tool} is not installed: make dev-env brings it"
    done = subprocess.run([command, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["compose.yaml", "compose.nvidia.yaml", "compose.ascend.yaml"])
def test_compose_files_keep_their_specification(name: str) -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name)


def test_manifests_keep_kubernetes_schemas() -> None:
    names = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
    told = run("kubernetes-validate", "--strict", "-k", KUBERNETES, *names)
    assert told.count(" passed for resource ") == 6


def test_the_dockerfile_is_linted() -> None:
    run("hadolint", DEPLOY / "Dockerfile")


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """systemd looks whether the command exists: here it is another one."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    made = []
    for source in sorted((DEPLOY / "systemd").iterdir()):
        unit = tmp_path / source.name.replace("@.", "@1.")
        unit.write_text(source.read_text("utf-8").replace("/opt/mindserve/bin/mindserve", "/bin/true"))
        made.append(unit)
    assert len(made) == 2
    return made


def test_units_are_verified_without_a_word(units: list[Path]) -> None:
    assert run("systemd-analyze", "verify", "--man=no", *units) == ""


def test_units_are_hardened(units: list[Path]) -> None:
    for unit in units:
        run("systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", unit)

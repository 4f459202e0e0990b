"""Configs for tests, and the short way to read one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.faults import ConfigInvalid
from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.overrides import Overrides

Load = Callable[..., LoadedConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """``load(content, overrides=, environ=)`` writes the content as config.json and reads it."""

    def write_and_load(
        content: object, overrides: Overrides | None = None, environ: dict[str, str] | None = None
    ) -> LoadedConfig:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content), "utf-8")
        return load_config(path, overrides or Overrides(), environ or {})

    return write_and_load


@pytest.fixture
def faults_of(load: Load) -> Callable[..., dict[str, str]]:
    """Path -> problem of everything wrong with a content."""

    def read(content: object, **keywords: Any) -> dict[str, str]:
        try:
            load(content, **keywords)
        except ConfigInvalid as error:
            return {fault.path: fault.problem for fault in error.faults}
        return {}

    return read


@pytest.fixture
def write_adapter(tmp_path: Path) -> Callable[[str], None]:
    """Makes what a config needs to see of an adapter, in a folder of this name."""

    def write(name: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")

    return write


@pytest.fixture
def full_mindie(tmp_path: Path, write_adapter: Callable[[str], None]) -> dict[str, Any]:
    """Every key of MindIE's; the weights and the adapter it names exist."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("full_mindie.json").read_text("utf-8"))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    write_adapter("adapter")
    return content

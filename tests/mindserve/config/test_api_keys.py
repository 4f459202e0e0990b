from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.api_keys import ApiKeys, read_api_keys
from mindserve.config.faults import ConfigInvalid
from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.lower import serve_settings
from mindserve.config.overrides import Overrides
from mindserve.errors import StartupError


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_one_key_a_line_and_one_of_the_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "# for the chat page\n  sk-a \r\n\nsk-b\n\n# sk-c\n")
    keys = read_api_keys(file, {"MINDSERVE_API_KEY": " sk-d\n"})
    assert keys is not None
    assert [key for key in ("sk-a", "sk-b", "sk-c", "sk-d", "", "# sk-c", "sk-a\n") if keys.knows(key)] == [
        "sk-a",
        "sk-b",
        "sk-d",
    ]


@pytest.mark.parametrize("environ", [{}, {"MINDSERVE_API_KEY": ""}, {"MINDSERVE_API_KEY": " "}])
def test_no_keys(environ: dict[str, str]) -> None:
    assert read_api_keys(None, environ) is None


@pytest.mark.parametrize("text", ["", "\n\n", "# only this\n"])
def test_a_file_without_a_key_does_not_open_the_server(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError, match=r"keys holds no key"):
        read_api_keys(written(tmp_path, text), {})


@pytest.mark.parametrize(
    "text", ["sk-a\nsecret word\n", "sk-a\nsecretß\n", b"sk-a\nsecret\xff\n", "sk-a\nsecret\x00\n"]
)
def test_a_key_that_no_header_can_carry_is_told_without_showing_it(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(StartupError, match=r"line 2: a key is made of visible ASCII") as refused:
        read_api_keys(written(tmp_path, text), {})
    assert "secret" not in str(refused.value)


def test_a_variable_that_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"^MINDSERVE_API_KEY: a key is made of"):
        read_api_keys(None, {"MINDSERVE_API_KEY": "two words"})


def test_a_file_that_is_missing_or_endless(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be read: No such file"):
        read_api_keys(tmp_path / "none", {})
    with pytest.raises(StartupError, match="more than 1048576 bytes"):
        read_api_keys(Path("/dev/zero"), {})


def test_nothing_shows_the_keys() -> None:
    keys = ApiKeys(["sk-a", "sk-b", "sk-a"])
    assert repr(keys) == "ApiKeys(2 keys)"
    assert "sk-" not in str(vars(keys))


def test_every_key_is_compared_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In constant time: no comparison is left out after one that fits."""
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr("mindserve.config.api_keys.hmac.compare_digest", counted)
    keys = ApiKeys(["sk-a", "sk-b", "sk-c"])
    for key, is_known in (("sk-a", True), ("sk-c", True), ("sk-d", False)):
        compared.clear()
        assert keys.knows(key) is is_known
        assert len(compared) == 3


Load = Callable[[dict[str, Any]], LoadedConfig]


def test_the_file_of_the_config_starts_at_its_folder(load: Load, tmp_path: Path) -> None:
    written(tmp_path, "sk-a\n")
    settings = serve_settings(load({"ServerConfig": {"apiKeyFile": str(tmp_path / "keys")}}))
    assert settings.api_keys is not None
    assert settings.api_keys.knows("sk-a")
    assert serve_settings(load({})).api_keys is None


def test_a_fault_of_the_file_stands_among_the_others(load: Load) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load({"ServerConfig": {"apiKeyFile": "none", "port": 1}})
    assert [fault.path for fault in refused.value.faults] == ["ServerConfig.port", "ServerConfig.apiKeyFile"]


def test_a_typed_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "sk-a\n")
    monkeypatch.chdir(tmp_path)
    overrides = Overrides(api_key_file=Path("keys"), engine="scripted", model=written(tmp_path, "sk-a\n"))
    keys = load_config(None, overrides, {}).api_keys
    assert keys is not None
    assert keys.knows("sk-a")
    with pytest.raises(StartupError, match=r"the API key file .*none cannot be read"):
        load_config(None, Overrides(api_key_file=Path("none"), engine="scripted", model=tmp_path / "keys"), {})


@pytest.mark.parametrize("origin", ["*", "http://localhost:3000", "https://chat.example.org"])
def test_origins(load: Load, origin: str) -> None:
    assert serve_settings(load({"ServerConfig": {"corsAllowOrigins": [origin]}})).cors_allow_origins == (origin,)


@pytest.mark.parametrize(
    "origin", ["", "chat.example.org", "https://a.org/", "https://a.org/page", "https://*.a.org x"]
)
def test_what_is_no_origin(load: Load, origin: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load({"ServerConfig": {"corsAllowOrigins": [origin]}})
    assert refused.value.faults[0].path == "ServerConfig.corsAllowOrigins[0]"

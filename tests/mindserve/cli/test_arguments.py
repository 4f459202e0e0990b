from pathlib import Path

import pytest

from mindserve.cli.arguments import parse_arguments


def test_the_words_of_serve() -> None:
    words = ["serve", "--config", "c.json", "--model", "m.gguf", "--model-name", "n", "--engine", "scripted"]
    words += ["--api-key-file", "keys", "--no-browser-pages"]
    arguments = parse_arguments(
        [*words, "--host", "::1", "--port", "0", "--dtype", "int4", "--device", "npu", "--log-level", "debug"]
    )
    assert vars(arguments) == {
        "command": "serve",
        "config": Path("c.json"),
        "model": Path("m.gguf"),
        "model_name": "n",
        "engine": "scripted",
        "host": "::1",
        "port": 0,
        "dtype": "int4",
        "device": "npu",
        "api_key_file": Path("keys"),
        "browser_pages": False,
        "log_level": "debug",
    }


def test_without_words_serve_has_no_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIES_CONFIG_JSON_PATH", raising=False)
    assert {value for name, value in vars(parse_arguments(["serve"])).items() if name != "command"} == {None}


def test_mindies_variable_names_the_config_unless_it_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIES_CONFIG_JSON_PATH", "/from/variable.json")
    assert parse_arguments(["serve"]).config == Path("/from/variable.json")
    assert parse_arguments(["serve", "--config", "typed.json"]).config == Path("typed.json")
    monkeypatch.setenv("MIES_CONFIG_JSON_PATH", "")
    assert parse_arguments(["serve"]).config is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["serv"],
        ["serve", "--engine", "unknown"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "http"],
        ["serve", "--dtype", "int3"],
        ["serve", "--device", "tpu"],
        ["serve", "extra"],
        ["check-config"],
    ],
)
def test_what_is_not_understood_is_told_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("mindserve 0.")

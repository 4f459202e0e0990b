"""The commands as a person runs them: what they print, and their exit codes."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.api.contract import openapi_json
from mindserve.cli.commands import COMMANDS
from mindserve.cli.main import main
from mindserve.config.settings import Dialect
from mindserve.errors import EngineDidNotStart, StartupError

SPEC = Path(__file__).parents[3] / "spec" / "openapi.yaml"
Printed = pytest.CaptureFixture[str]


def refused(capsys: Printed, *words: object) -> str:
    """The one line that a command fails with."""
    assert main([str(word) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    return printed.err.rstrip("\n")


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    def write(**server: object) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"ServerConfig": server}))
        return path

    return write


def test_what_another_start_may_mend_has_a_status_of_its_own(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: object) -> int:
        raise EngineDidNotStart("it died")

    monkeypatch.setitem(COMMANDS, "spec", fail)
    assert main(["spec"]) == 1
    assert capsys.readouterr().err == "it died\n"


def test_the_spec_is_printed(capsys: Printed) -> None:
    assert main(["spec"]) == 0
    assert capsys.readouterr().out == SPEC.read_text("utf-8")
    assert main(["spec", "--json"]) == 0
    assert "prefill_time" in capsys.readouterr().out
    for dialect in Dialect:
        assert main(["spec", "--json", "--dialect", dialect]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(openapi_json(dialect))
    assert "--dialect goes with --json" in refused(capsys, "spec", "--dialect", "openai")


def test_a_sound_config(capsys: Printed, config: Callable[..., Path]) -> None:
    path = config(prot=1, kmcKsfMaster="")
    assert main(["check-config", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{path}: no faults\n"
    assert printed.err.splitlines() == [
        "note: ServerConfig.prot is not a key of config.json and has no effect: did you mean port?",
        "note: ignored, without a meaning here: ServerConfig.kmcKsfMaster",
    ]


def test_an_invalid_config_gives_a_line_per_fault(capsys: Printed, config: Callable[..., Path]) -> None:
    path = config(port=80, maxLinkNum=0)
    for words in (["check-config", str(path)], ["serve", "--config", str(path)]):
        assert main(words) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"{path}: ServerConfig.maxLinkNum: 0 is below the minimum 1",
            f"{path}: ServerConfig.port: 80 is below the minimum 1024",
        ]


def test_a_config_that_is_none(capsys: Printed, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert refused(capsys, "check-config", path) == f"{path}: cannot be read: No such file or directory"
    path.write_text("{")
    assert refused(capsys, "serve", "--config", path).startswith(f"{path}:1:2: is not valid JSON")


def test_check_config_reads_the_tls_files(capsys: Printed, config: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    path = config(httpsEnabled=True, tlsCert="cert.pem", tlsPk="cert.pem")
    assert refused(capsys, "check-config", path).startswith("ServerConfig.tlsCert: ")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("nowhere", None, "does not exist"),
        ("model.bin", "", "is neither a model's folder nor a .gguf file"),
    ],
)
def test_a_model_that_is_none(capsys: Printed, tmp_path: Path, name: str, content: str | None, problem: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert refused(capsys, "serve", "--model", path) == f"--model: {path} {problem}"


def test_the_scripted_engine_without_a_script(capsys: Printed) -> None:
    assert refused(capsys, "serve", "--engine", "scripted") == "--model: the scripted engine needs a script here"


def test_an_offline_machine(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Path:
        raise StartupError("could not be downloaded")

    monkeypatch.setattr("mindserve.cli.commands.fetch_model", fail)
    assert refused(capsys, "fetch") == "could not be downloaded"


def test_fetch_prints_the_path(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mindserve.cli.commands.fetch_model", lambda model, folder, console: folder / model.file_name)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert main(["fetch"]) == 0
    assert capsys.readouterr().out == "/caches/mindserve/SmolLM2-135M-Instruct.Q4_1.gguf\n"


def test_ctrl_c_before_serving_shows_no_traceback(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("mindserve.cli.commands.fetch_model", interrupt)
    assert main(["fetch"]) == 130
    assert capsys.readouterr().err == ""


def test_a_missing_library_is_named(capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = tmp_path / "model.gguf"
    weights.write_text("")
    monkeypatch.setitem(sys.modules, "mindserve.cli.start", None)
    assert "pip install 'mindserve[cpu]'" in refused(capsys, "serve", "--model", weights)


def test_a_port_in_use(mindserve: Callable[..., Any], script: Callable[..., Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = mindserve("serve", "--engine", "scripted", "--model", script(), "--port", port)
    assert (done.code, done.output) == (2, "")
    assert done.errors == (
        f"port {port} on 127.0.0.1 is in use: stop what listens there or choose another with --port\n"
    )


def test_a_model_that_cannot_be_loaded(mindserve: Callable[..., Any], script: Callable[..., Path]) -> None:
    path = script({"load": {"failure": "the weights are torn"}})
    done = mindserve("serve", "--engine", "scripted", "--model", path, "--port", 0)
    assert done.code == 2
    assert "the weights are torn" in done.errors.splitlines()[-1]
    assert "Traceback" not in done.errors


def test_weights_that_are_no_model(mindserve: Callable[..., Any], tmp_path: Path) -> None:
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"no weights")
    done = mindserve("serve", "--model", weights, "--port", 0)
    assert done.code == 2
    assert str(weights) in done.errors.splitlines()[-1]
    assert "Traceback" not in done.errors


def test_a_reader_that_has_seen_enough() -> None:
    """``mindserve spec | head -1``"""
    command = f"{sys.executable} -m mindserve spec | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")

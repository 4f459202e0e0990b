import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mindserve.chat.parsing.formats import PARSERS
from mindserve.cli.planes import Plane
from mindserve.cli.ready import curl_line, ready_lines
from mindserve.config.listen import Listen, TlsFiles
from mindserve.config.settings import ModelTypeSettings, ServeSettings
from mindserve_engine.types import EngineInfo

INFO = EngineInfo(
    model_type="llama", vocab_size=10, max_context=8192, max_prompt_tokens=8191, device="cpu", weights="int4"
)


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        yield opened


def test_the_lines_name_the_address_the_model_and_a_command(bound: socket.socket) -> None:
    plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
    lines = ready_lines((plane, plane), ServeSettings(model_name="m"), INFO)
    assert lines[:3] == [
        f"ready: {plane.url}",
        "model: m (llama, int4, on cpu, context of 8192 tokens)",
        f"health and metrics also at {plane.url}",
    ]
    assert f"in a browser: {plane.url}/" in lines
    assert lines[-1].startswith(f"curl {plane.url}/v1/chat/completions")


def test_without_pages_no_browser_is_sent_to_them(bound: socket.socket) -> None:
    plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
    lines = ready_lines((plane,), ServeSettings(model_name="m", browser_pages=False), INFO)
    assert "browser" not in "".join(lines)


def test_a_context_that_the_memory_cuts_is_said_to_be_cut(bound: socket.socket) -> None:
    plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
    cut = msgspec.structs.replace(INFO, is_context_cut_by_memory=True)
    assert (
        "context of 8192 tokens, cut to what the KV memory holds"
        in ready_lines((plane,), ServeSettings(model_name="m"), cut)[1]
    )


def test_the_command_survives_the_shell_whatever_the_model_is_called(bound: socket.socket) -> None:
    name = """it's "$HOME" `x` ü"""
    words = shlex.split(curl_line(Plane(Listen(host="127.0.0.1", port=0), bound, None), name))
    assert json.loads(words[words.index("-d") + 1])["model"] == name


def test_with_tls_the_command_names_certificates(bound: socket.socket) -> None:
    tls = TlsFiles(prefix="tls", cert=Path("/c.pem"), key=Path("/k.pem"))
    assert "--cacert /c.pem -H" in curl_line(Plane(Listen(host="127.0.0.1", port=0, tls=tls), bound, None), "m")
    mutual = TlsFiles(prefix="tls", cert=Path("/c.pem"), key=Path("/k.pem"), ca=(Path("/ca.pem"),))
    assert "--cert client.pem" in curl_line(Plane(Listen(host="127.0.0.1", port=0, tls=mutual), bound, None), "m")


@pytest.mark.parametrize(
    ("types", "notes"),
    [
        ({}, []),
        ({"Llama": ModelTypeSettings(tool_call_parser="hermes")}, []),
        (
            {"qwen3": ModelTypeSettings(tool_call_parser="hermes")},
            ["note: models: qwen3: nothing is set for the served type, llama"],
        ),
        (
            {"llama": ModelTypeSettings(tool_call_parser="qwen1_5")},
            [f'note: tool_call_parser: "qwen1_5" is none of {", ".join(PARSERS)}; the model\'s own way is used'],
        ),
    ],
)
def test_settings_of_types_that_have_no_effect_are_told(
    bound: socket.socket, types: dict[str, ModelTypeSettings], notes: list[str]
) -> None:
    plane = Plane(Listen(host="127.0.0.1", port=0), bound, None)
    lines = ready_lines((plane,), ServeSettings(model_name="m", model_types=types), INFO)
    assert [line for line in lines if line.startswith("note: ")] == notes

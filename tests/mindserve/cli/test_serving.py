"""The server's process: what it answers while it loads, serves, drains and ends."""

import asyncio
import errno
import io
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from rich.console import Console

from mindserve.chat.media.decoding import pool
from mindserve.cli.engine_options import EngineChoice
from mindserve.cli.planes import Plane
from mindserve.cli.serving import ServingPlan, _report_storage, run_server
from mindserve.cli.sockets import bind_all
from mindserve.config.listen import Listen
from mindserve.config.settings import ServeSettings
from mindserve.errors import EngineDidNotStart, StartupError
from mindserve.observe.logs import KeyValueFormatter
from mindserve_engine.interface import EngineNotStarted
from mindserve_engine.options import EngineOptions
from mindserve_engine.scripted.engine import ScriptedEngine
from mindserve_engine.types import EngineHealth, EngineInfo, EngineState, MediaKind, MediaModel
from tests.media_service import first, part, turn

LONG_MS = 3_600_000
Serve = Callable[..., Any]
Script = Callable[..., Path]


def chat(**changes: object) -> dict[str, object]:
    return {"model": "script", "messages": [{"role": "user", "content": "Hello"}], **changes}


@pytest.fixture
def plan() -> Iterator[Callable[..., ServingPlan]]:
    """A plan over the scripted engine, with so many sockets."""
    with ExitStack() as opened:

        def make(script: Path, num_planes: int = 1) -> ServingPlan:
            addresses = [Listen(host="127.0.0.1", port=0)] * num_planes
            sockets = [opened.enter_context(bound) for bound in bind_all(addresses)]
            return ServingPlan(
                settings=ServeSettings(model_name="script"),
                engine=EngineChoice("scripted", EngineOptions(model_path=script)),
                planes=tuple(Plane(address, bound, None) for address, bound in zip(addresses, sockets, strict=True)),
            )

        yield make


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def first_answer(client: httpx2.AsyncClient, url: str) -> httpx2.Response:
    """The socket is bound before anybody accepts."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.get(url)
            except httpx2.ConnectError:
                await asyncio.sleep(0)


async def until_ready(client: httpx2.AsyncClient, url: str) -> None:
    async with asyncio.timeout(30):
        while (await first_answer(client, f"{url}/health")).status_code != 200:  # noqa: ASYNC110 - only the wire tells
            await asyncio.sleep(0)


async def test_while_the_model_loads_health_says_so_and_requests_are_refused(
    script: Script, plan: Callable[..., ServingPlan]
) -> None:
    loading = plan(script({"load": {"delay_ms": LONG_MS}}))
    url = loading.planes[0].url
    running = asyncio.create_task(run_server(loading, Console(file=io.StringIO())))
    async with httpx2.AsyncClient() as client:
        health = await first_answer(client, f"{url}/health")
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        refused = await client.post(f"{url}/v1/chat/completions", json=chat())
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    stop_this_process()
    assert await running == 0


async def test_an_engine_that_cannot_start_ends_the_server(script: Script, plan: Callable[..., ServingPlan]) -> None:
    failing = plan(script({"load": {"failure": "the weights are torn"}}))
    url = failing.planes[0].url
    with pytest.raises(StartupError, match="the weights are torn"):
        await run_server(failing, Console(file=io.StringIO()))
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")


async def test_an_engine_that_dies_while_it_starts_is_told_from_one_that_cannot(
    script: Script, plan: Callable[..., ServingPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(engine: ScriptedEngine) -> None:
        raise EngineNotStarted("it died")

    monkeypatch.setattr(ScriptedEngine, "start", start)
    with pytest.raises(EngineDidNotStart, match="it died"):
        await run_server(plan(script()), Console(file=io.StringIO()))


@pytest.mark.parametrize("ends_with_engine", [True, False])
async def test_a_lost_engine_ends_the_server_where_that_is_set(
    script: Script, plan: Callable[..., ServingPlan], monkeypatch: pytest.MonkeyPatch, ends_with_engine: bool
) -> None:
    serving = msgspec.structs.replace(plan(script({})), ends_with_engine=ends_with_engine)
    url = serving.planes[0].url
    running = asyncio.create_task(run_server(serving, Console(file=io.StringIO())))
    async with httpx2.AsyncClient() as client:
        await until_ready(client, url)
        failed = EngineHealth(state=EngineState.FAILED, reason="it is gone")
        monkeypatch.setattr(ScriptedEngine, "health", lambda engine: failed)
        if not ends_with_engine:
            live = await client.get(f"{url}/v2/health/live")
            assert (live.status_code, live.json()["status"]) == (503, "failed")
            stop_this_process()
    assert await running == (1 if ends_with_engine else 0)


async def test_all_planes_answer_health_metrics_and_requests(
    script: Script, plan: Callable[..., ServingPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    serving = plan(script(), 3)
    urls = [plane.url for plane in serving.planes]
    running = asyncio.create_task(run_server(serving, Console(file=io.StringIO())))
    async with httpx2.AsyncClient() as client:
        for url in urls:
            await until_ready(client, url)
            assert "request_received_total" in (await client.get(f"{url}/metrics")).text
            answer = await client.post(f"{url}/v1/chat/completions", json=chat())
            assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    stop_this_process()
    assert await running == 0
    assert capsys.readouterr().out.splitlines()[0] == f"ready: {urls[0]}"


def events(response: httpx2.Response) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))


def until_draining(url: str) -> httpx2.Response:
    while (health := httpx2.get(f"{url}/health")).json()["status"] != "draining":
        continue
    return health


def test_after_sigterm_running_answers_end_and_new_ones_are_refused(serve: Serve, script: Script) -> None:
    served = serve("--engine", "scripted", "--model", script(pieces=["a"] * 20, delay_ms=100), "--port", 0)
    url = f"{served.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=chat(stream=True), timeout=60) as response:
        stream = events(response)
        next(stream)
        served.process.send_signal(signal.SIGTERM)
        assert until_draining(served.url).status_code == 503
        refused = httpx2.post(url, json=chat())
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        rest = list(stream)
    assert rest[-1] == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["delta"]["content"] for event in rest[:-1]) == "a" * 20
    code, errors = served.end()
    assert code == 0
    assert "Traceback" not in errors


def config_file(folder: Path, script: Path, **server: object) -> Path:
    model = {"modelName": "script", "backendType": "scripted", "modelWeightPath": str(script)}
    content = {"ServerConfig": server, "BackendConfig": {"ModelDeployConfig": {"ModelConfig": [model]}}}
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_after_the_drain_timeout_a_stream_ends_with_an_error(serve: Serve, script: Script, tmp_path: Path) -> None:
    config = config_file(tmp_path, script(hang_after=1), drainTimeout=0)
    served = serve("--config", config, "--port", 0)
    url = f"{served.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=chat(stream=True), timeout=60) as response:
        stream = events(response)
        next(stream)
        served.process.send_signal(signal.SIGINT)
        last = list(stream)[-1]
    assert "shut down" in json.loads(last)["error"]
    code, errors = served.end()
    assert code == 0
    assert "Traceback" not in errors


def test_a_second_signal_does_not_wait(serve: Serve, script: Script, tmp_path: Path) -> None:
    config = config_file(tmp_path, script(hang_after=1), drainTimeout=3600)
    served = serve("--config", config, "--port", 0)
    url = f"{served.url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=chat(stream=True), timeout=60) as response:
        stream = events(response)  # held: a dropped iterator closes the connection
        next(stream)
        served.process.send_signal(signal.SIGTERM)
        until_draining(served.url)
        served.process.send_signal(signal.SIGTERM)
        code, errors = served.end()
    assert code == 128 + signal.SIGTERM
    assert "Traceback" not in errors


STUCK_TEMPLATE = (
    "{% for message in messages %}{% if message.content == 'stuck' %}"
    "{% for outer in range(99999) %}{% for inner in range(99999) %}{% endfor %}{% endfor %}"
    "{% endif %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
)


@pytest.mark.parametrize(("drain_timeout_s", "num_signals", "code"), [(1, 1, 0), (3600, 2, 128 + signal.SIGTERM)])
def test_a_prompt_that_takes_minutes_does_not_hold_up_the_end(
    serve: Serve, script: Script, tmp_path: Path, drain_timeout_s: int, num_signals: int, code: int
) -> None:
    path = script({"chat_template": STUCK_TEMPLATE})
    config = config_file(tmp_path, path, drainTimeout=drain_timeout_s, tokenizerTimeout=300, tokenizerProcessNumber=1)
    served = serve("--config", config, "--port", 0)
    stuck = chat(messages=[{"role": "user", "content": "stuck"}])
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(httpx2.post, f"{served.url}/v1/chat/completions", json=stuck, timeout=60)
        while 'request_received_total{model_name="script"} 1.0' not in httpx2.get(f"{served.url}/metrics").text:
            continue
        for _ in range(num_signals):
            served.process.send_signal(signal.SIGTERM)
            if num_signals > 1:
                until_draining(served.url)
                num_signals = 1
        ended, errors = served.end()
        assert (ended, "Traceback" in errors) == (code, False)
        if drain_timeout_s == 1:
            assert (asked.result().status_code, "shut down" in asked.result().text) == (500, True)
        else:
            assert asked.exception() is not None


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def test_a_config_with_https_client_certificates_and_a_metrics_port(
    serve: Serve, script: Script, tmp_path: Path, authority: Callable[[str], Any]
) -> None:
    root = authority("root")
    cert, key = root.issue("server")
    friend = root.issue("friend")
    port, metrics_port = free_ports(2)
    tls = {"httpsEnabled": True, "tlsCert": cert.name, "tlsPk": key.name, "tlsCaFile": [root.file.name]}
    limits = {"maxRequestLength": 1}
    served = serve("--config", config_file(tmp_path, script(), port=port, metricsPort=metrics_port, **tls, **limits))
    assert served.url == f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cafile=str(root.file))
    with httpx2.Client(verify=context) as stranger, pytest.raises(httpx2.TransportError):
        stranger.get(f"{served.url}/health")
    context.load_cert_chain(*friend)
    with httpx2.Client(verify=context) as client:
        answer = client.post(f"{served.url}/v1/chat/completions", json=chat())
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        assert client.get(f"https://127.0.0.1:{metrics_port}/metrics").status_code == 200
        assert client.post(f"{served.url}/v1/chat/completions", content=b" " * 8_000_000).status_code == 413
        assert client.get(f"{served.url}/health", headers={"x": "a" * 70_000}).status_code == 431
    served.process.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0


def test_the_printed_command_works_in_a_shell(serve: Serve, script: Script) -> None:
    served = serve("--engine", "scripted", "--model", script(), "--model-name", "it's me", "--port", 0)
    done = subprocess.run(["bash", "-c", f"{served.lines[-1]} --silent"], capture_output=True, text=True, timeout=60)
    body = json.loads(done.stdout)
    assert (body["model"], body["choices"][0]["message"]["content"]) == ("it's me", "Hello")
    served.process.send_signal(signal.SIGTERM)
    code, errors = served.end()
    assert code == 0
    assert "chat request ended" in errors


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()


def test_what_decodes_media_starts_and_ends_with_the_server(serve: Serve, script: Script) -> None:
    served = serve("--engine", "scripted", "--model", script({"media": True}), "--port", 0)
    children = children_of(served.process.pid)
    assert len(children) == 2
    file = first(MediaKind.IMAGE)
    answer = httpx2.post(
        f"{served.url}/v1/chat/completions",
        json=chat(messages=[turn(part(file.kind, file.data_url))], model="script"),
        timeout=30,
    )
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert children_of(served.process.pid) == children
    served.process.send_signal(signal.SIGTERM)
    code, errors = served.end()
    assert code == 0
    assert 'event="storage of media"' in errors
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_a_server_of_text_starts_nothing_that_decodes(serve: Serve, script: Script) -> None:
    served = serve("--engine", "scripted", "--model", script(), "--port", 0)
    assert children_of(served.process.pid) == []


async def test_a_server_that_could_decode_nothing_does_not_start(
    plan: Callable[..., ServingPlan], script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(pool, "WorkerProcess", no_process)
    async with asyncio.timeout(60):
        with pytest.raises(StartupError, match="media: no process that decodes media can be started"):
            await run_server(plan(script({"media": True})), Console(file=io.StringIO()))


def test_the_start_tells_what_media_take(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServeSettings(max_connections=1000)
    text_only = EngineInfo(model_type="t", vocab_size=9, max_context=9, max_prompt_tokens=9)
    with caplog.at_level(logging.INFO):
        options = EngineOptions(model_path=Path("m"), num_instances=2, max_media_mb=700, media_cache_mb=50)
        native = EngineChoice("native", options)
        _report_storage(settings, native, text_only)
        assert caplog.records == []
        sees = msgspec.structs.replace(text_only, media=MediaModel(image_token_id=5))
        _report_storage(settings, native, sees)
        _report_storage(settings, EngineChoice("scripted", options), sees)
    told = [KeyValueFormatter().format(record) for record in caplog.records]
    server = "memory_mib=1024 passing_mib=1024 decoders_mib=3072 disk_mib=0 disk_by_rule_mib=768000"
    assert told[0].endswith(f'event="storage of media" {server} engine_mib=700 embeddings_mib=100')
    assert told[1].endswith(server)

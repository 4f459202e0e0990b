"""What the front end costs beside the engine: CPU time of a server whose answers are read from a script.

A streamed token at many concurrent streams, a whole request, and decoding and checking alone. CPU time of the server
process, not wall time, so that clients on the same machine do not count; run it on a quiet machine all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
from server import serving

from mindserve.api.checks import check_request
from mindserve.api.decode import decode_request
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.config.settings import ServeSettings

MODEL = "scripted"
STREAMED_TOKEN_US, REQUEST_MS, CHECKS_US = 60, 2, 100
"""What each may cost."""


def write_script(folder: Path, num_tokens: int) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps([{"default": True, "pieces": [" word"] * num_tokens}]), "utf-8")
    return path


def chat(**fields: object) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Say something."}], **fields}
    return msgspec.json.encode(body)


async def exchange(port: int, body: bytes, *, times: int = 1) -> int:
    """Send ``body`` so often over one connection; returns the number of events that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    headers = ("POST /v1/chat/completions HTTP/1.1", "Host: x", "Content-Type: application/json")
    head = "\r\n".join([*headers, f"Content-Length: {len(body)}"])
    num_events = 0
    for _ in range(times):
        writer.write(f"{head}\r\n\r\n".encode() + body)
        num_events += await _read_answer(reader)
    writer.close()
    return num_events


async def _read_answer(reader: asyncio.StreamReader) -> int:
    """Up to the end of one answer, parsing as little as can be: the client shares the machine."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    lower = head.lower()
    if b"content-length:" in lower:
        await reader.readexactly(int(lower.split(b"content-length:")[1].split(b"\r\n")[0]))
        return 0
    num_events, last = 0, b""
    while not last.endswith(b"0\r\n\r\n"):
        data = await reader.read(1 << 16)
        assert data, "the stream broke off"
        num_events += data.count(b"data: ")
        last = (last + data)[-8:]
    return num_events


async def streamed_token(port: int, process: psutil.Process, *, streams: int, tokens: int) -> float:
    """CPU microseconds of the server for a token at so many concurrent streams."""
    body = chat(stream=True, max_tokens=tokens)
    await asyncio.gather(*[exchange(port, body) for _ in range(8)])
    before = cpu_s(process)
    events = await asyncio.gather(*[exchange(port, body) for _ in range(streams)])
    assert min(events) >= tokens, "a stream came in larger pieces than tokens"
    return (cpu_s(process) - before) / (streams * tokens) * 1e6


async def request(port: int, process: psutil.Process, *, connections: int, times: int) -> float:
    """CPU milliseconds of the server for a request with a short answer."""
    body = chat(max_tokens=1)
    await exchange(port, body, times=50)
    before = cpu_s(process)
    await asyncio.gather(*[exchange(port, body, times=times) for _ in range(connections)])
    return (cpu_s(process) - before) / (connections * times) * 1e3


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def checks(num_messages: int, times: int = 5000) -> float:
    """Microseconds to decode and check a request of so many messages."""
    roles = ("user", "assistant")
    turn = "A sentence of the length that people write in chats, with a question at its end?"
    messages = [{"role": roles[i % 2], "content": turn} for i in range(num_messages - 1)]
    body = msgspec.json.encode(
        {
            "model": MODEL,
            "messages": [{"role": "system", "content": "Be brief."}, *messages],
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 256,
            "stream": True,
            "stop": ["\n\n"],
        }
    )
    dialect, settings = VllmDialect(), ServeSettings(model_name=MODEL)
    began = time.process_time()
    for _ in range(times):
        check_request(
            decode_request(body, dialect.requests, max_json_depth=settings.max_json_depth), dialect.rules, settings
        )
    return (time.process_time() - began) / times * 1e6


def main() -> None:
    """Measure and print, with what each figure may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256, help="of each stream")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder), options.tokens)
        arguments = ("--engine", "scripted", "--model", str(script), "--model-name", MODEL)
        with serving(*arguments) as server:
            process = psutil.Process(server.pid)
            token = asyncio.run(streamed_token(server.port, process, streams=options.streams, tokens=options.tokens))
            whole = asyncio.run(request(server.port, process, connections=8, times=250))
    print(f"a streamed token at {options.streams} streams: {token:.1f} us of CPU (at most {STREAMED_TOKEN_US})")
    print(f"a request: {whole:.2f} ms of CPU (at most {REQUEST_MS})")
    print(f"decoding and checking 10 messages: {checks(10):.1f} us (at most {CHECKS_US})")


if __name__ == "__main__":
    main()

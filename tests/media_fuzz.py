"""Thousands of mutated files through the decoders and over HTTP: ``python -m tests.media_fuzz --files 5000``.

Prints what became of them and how memory went, and exits with 1 when anything but an answer or a refusal that names the
part came back, a process was lost, or memory grew. Every file has a number: ``--first N --files 1`` tries one again.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve_engine.types import MediaKind
from tests.media_mutations import Seed, mutated, seeds
from tests.mindserve.chat.media.decoding.hostile import CASES, ordinary
from tests.mindserve.chat.media.decoding.makers import MODEL
from tests.serving import write_script

PATIENT: Final = DecodeLimits(max_wall_s=3600.0, max_cpu_s=60)
HEAVY: Final = frozenset({"png 64 megapixels", "many frames", "wav of 200 channels"})
"""Hostile files that take a second each."""
CHAT: Final = "/v1/chat/completions"
MIMES: Final = {MediaKind.IMAGE: "image/png", MediaKind.VIDEO: "video/mp4", MediaKind.AUDIO: "audio/x-wav"}
GROWTH_KB: Final = 20_000
"""Of a process that decodes: its libraries keep what the largest file so far took."""
SERVER_GROWTH_KB: Final = 6_000
NUM_CLIENTS: Final = 3
_WARM_SHARE: Final = 0.25
"""Of the files come before memory is measured for the first time."""


@dataclass
class Outcomes:
    """What became of the files."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    grown_kb: list[int] = field(default_factory=list)
    """Of the server first."""

    def note_time(self, seconds: float, name: str) -> None:
        self.slowest = max(self.slowest, (seconds, name))


def mutation(number: int, seed: int) -> tuple[Seed, bytes]:
    """The file of that number, whatever others there are."""
    rng = random.Random(f"{seed}/{number}")
    whole = seeds()[number % len(seeds())]
    return whole, mutated(whole, rng)


async def decode_all(pool: DecodePool, numbers: Sequence[int], seed: int) -> Outcomes:
    """Through the processes that decode."""
    outcomes = Outcomes()
    for number in numbers:
        whole, data = mutation(number, seed)
        name, began = f"file {number} ({whole.name})", time.monotonic()
        outcome = await _decoded(pool, whole.kind, data)
        outcomes.counts[outcome.split(":")[0]] += 1
        outcomes.note_time(time.monotonic() - began, name)
        if outcome not in ("decoded", "refused"):
            outcomes.faults.append(f"{name}: {outcome}")
    return outcomes


async def _decoded(pool: DecodePool, kind: MediaKind, data: bytes) -> str:
    try:
        await pool.decode(kind, data)
    except MediaRejected as refused:
        text = str(refused)
        if "ended the process" in text or "takes longer" in text:
            return f"lost: {text}"
        return f"unforeseen: {refused.__cause__}" if text.endswith("cannot be decoded") else "refused"
    return "decoded"


def part(kind: MediaKind, mime: str, data: bytes) -> dict[str, Any]:
    """Of a message, as a data: URL."""
    name = f"{kind}_url"
    return {"type": name, name: {"url": f"data:{mime};base64,{base64.b64encode(data).decode()}"}}


def body_of(parts: Sequence[dict[str, Any]], model: str) -> dict[str, Any]:
    """Of a request; the text stands first."""
    content = [{"type": "text", "text": "What is it?"}, *parts]
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 4}


def judged(response: httpx2.Response, num_parts: int) -> str:
    """What the answer is; "fault: ..." when it should not be."""
    if response.status_code == 200:
        return "answered"
    fields = [f"messages[0].content[{place}]" for place in range(1, num_parts + 1)]
    if response.status_code == 422 and any(named in response.text for named in fields):
        return "refused"
    return f"fault: {response.status_code} {response.text[:200]}"


async def post_all(url: str, model: str, groups: Sequence[Sequence[tuple[str, dict[str, Any]]]], pid: int) -> Outcomes:
    """Over HTTP, the parts of a group in one request; ``pid``: of the server, whose memory is looked at."""
    outcomes, before = Outcomes(), [0]
    left = iter(enumerate(groups))

    async def send(client: httpx2.AsyncClient) -> None:
        for place, group in left:
            names, began = ", ".join(name for name, _ in group), time.monotonic()
            response = await client.post(CHAT, json=body_of([one for _, one in group], model))
            outcome = judged(response, len(group))
            outcomes.counts[outcome.split(":")[0]] += 1
            outcomes.note_time(time.monotonic() - began, names)
            if outcome.startswith("fault"):
                outcomes.faults.append(f"{names}: {outcome}")
            if place == int(_WARM_SHARE * len(groups)):
                before[:] = [kb for _, kb in memory(pid)]

    workers = [name for name, _ in memory(pid)]
    async with httpx2.AsyncClient(base_url=url, timeout=600) as client, asyncio.TaskGroup() as clients:
        for _ in range(NUM_CLIENTS):
            clients.create_task(send(client))
    after = memory(pid)
    if [name for name, _ in after] != workers:
        outcomes.faults.append("processes that decode were lost")
    outcomes.grown_kb = [late - early for early, (_, late) in zip(before, after, strict=False)]
    if outcomes.grown_kb[0] > SERVER_GROWTH_KB or max(outcomes.grown_kb) > GROWTH_KB:
        outcomes.faults.append(f"memory grew by {outcomes.grown_kb} kB")
    return outcomes


def memory(pid: int) -> list[tuple[int, int]]:
    """Process and resident kB of the server and of its children."""
    server = psutil.Process(pid)
    return [(one.pid, one.memory_info().rss // 1024) for one in (server, *server.children())]


def mutated_groups(numbers: Sequence[int], seed: int) -> list[list[tuple[str, dict[str, Any]]]]:
    """Requests of one to three files."""
    rng, groups, left = random.Random(seed), [], list(numbers)
    while left:
        taken, left = left[: (size := rng.choice((1, 1, 2, 3)))], left[size:]
        pairs = [(number, *mutation(number, seed)) for number in taken]
        groups.append([(f"file {number}", part(whole.kind, whole.mime, data)) for number, whole, data in pairs])
    return groups


def mixed_groups(num_items: int) -> list[list[tuple[str, dict[str, Any]]]]:
    """Hostile and ordinary files in turns, one a request; an empty one is none of them, its URL is refused unread."""
    made = [(case.name, case.kind, case.make()) for case in CASES if case.name not in HEAVY]
    made += [("ordinary", kind, data) for kind, data, _ in ordinary() * 4]
    parts = [(name, part(kind, MIMES[kind], data)) for name, kind, data in made if data]
    return [[parts[place % len(parts)]] for place in range(num_items)]


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """URL and process of a server over the scripted engine, started as an operator would."""
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder), {"replies": [{"default": True, "pieces": ["A thing."]}], "media": True})
        words = ["--port", "0", "--engine", "scripted", "--model", str(script), "--model-name", "m"]
        command = [sys.executable, "-m", "mindserve", "serve", "--log-level", "error", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                lines = iter(process.stdout.readline, "")
                yield (
                    next(line for line in lines if line.startswith("ready: ")).removeprefix("ready: ").strip(),
                    (process.pid),
                )
            finally:
                process.terminate()


async def _decode(numbers: Sequence[int], seed: int) -> Outcomes:
    pool = DecodePool(MODEL, PATIENT, num_workers=1)
    await pool.start()
    try:
        outcomes = await decode_all(pool, numbers, seed)
        outcomes.faults += [f"{pool.tally.num_replaced} processes were lost"] if pool.tally.num_replaced else []
        return outcomes
    finally:
        await pool.close()


async def _post(numbers: Sequence[int], num_items: int, seed: int) -> list[tuple[str, Outcomes]]:
    with served() as (url, pid):
        results = []
        if numbers:
            results.append(("over HTTP", await post_all(url, "m", mutated_groups(numbers, seed), pid)))
        if num_items:
            results.append(("hostile and ordinary", await post_all(url, "m", mixed_groups(num_items), pid)))
        good = [[("good", part(whole.kind, whole.mime, whole.data))] for whole in seeds()]
        results.append(("good ones afterwards", afterwards := await post_all(url, "m", good, pid)))
        if afterwards.counts.keys() != {"answered"}:
            afterwards.faults.append("a good file was not taken")
        return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000, help="mutated files (default 5000)")
    parser.add_argument("--http", type=int, default=1000, help="of them over HTTP as well (default 1000)")
    parser.add_argument("--items", type=int, default=2000, help="hostile and ordinary files over HTTP (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    numbers = range(chosen.first, chosen.first + chosen.files)
    results = [("decoded", asyncio.run(_decode(numbers, chosen.seed)))]
    if chosen.http or chosen.items:
        results += asyncio.run(_post(numbers[: chosen.http], chosen.items, chosen.seed))
    for name, outcomes in results:
        seconds, slowest = outcomes.slowest
        print(f"{name}: {dict(outcomes.counts)}; slowest {seconds:.2f} s, {slowest}; grown by {outcomes.grown_kb} kB")
        print(*(f"  FAULT {fault}" for fault in outcomes.faults), sep="\n", end="\n" if outcomes.faults else "")
    return 1 if any(outcomes.faults for _, outcomes in results) else 0


if __name__ == "__main__":
    sys.exit(main())

"""How a server with the default model behaves beside its throughput: repeated prefixes, prompts that come while others
are answered, long contexts, the start, and what the deterministic mode costs."""

from __future__ import annotations

import asyncio
import itertools
from statistics import median, quantiles

import httpx2
import msgspec
import psutil
from client import Timed, stream_once
from server import Served, serving
from workload import PromptMaker


class Prefix(msgspec.Struct, frozen=True):
    """A prompt of which nine tenths are known against one of which nothing is."""

    prompt_tokens: int
    cold_ttft_ms: float
    warm_ttft_ms: float


class Mixed(msgspec.Struct, frozen=True):
    """Time between the tokens of running streams while new prompts arrive."""

    clients: int
    median_ms: float
    p99_ms: float


class LongContext(msgspec.Struct, frozen=True):
    prompt_tokens: int
    prefill_tokens_per_s: float
    tpot_ms: float
    short_tpot_ms: float


class Start(msgspec.Struct, frozen=True):
    ready_s: float
    resident_mb: float
    """Of the server and its engine process after a few requests; pages they share are counted once."""


class Client:
    """Requests to one server."""

    def __init__(self, http: httpx2.AsyncClient, url: str, model: str) -> None:
        self.http = http
        self._url = url
        self._model = model

    async def ask(self, prompt: str, max_tokens: int) -> Timed:
        return await stream_once(self.http, self._url, model=self._model, prompt=prompt, max_tokens=max_tokens)

    async def maker(self, tokens: int, seed: int) -> tuple[PromptMaker, int]:
        maker = PromptMaker(tokens, seed=seed)
        return maker, await maker.calibrate(self.http, self._url, self._model)


async def prefix(client: Client, *, tokens: int = 2000, times: int = 5) -> Prefix:
    maker, reached = await client.maker(tokens, seed=1)
    cold, warm = [], []
    for _ in range(times):
        words = maker.make().split(" ")
        known = words[: len(words) * 9 // 10]
        cold.append((await client.ask(" ".join(words), 1)).ttft_s)
        other = maker.make().split(" ")[: len(words) - len(known)]
        warm.append((await client.ask(" ".join(known + other), 1)).ttft_s)
    return Prefix(reached, median(cold) * 1e3, median(warm) * 1e3)


async def mixed(client: Client, *, clients: int = 8, arrivals: int = 24) -> Mixed:
    """Long answers to ``clients`` while prompts of 102 tokens come one after the other."""
    maker, _ = await client.maker(102, seed=2)
    running = [asyncio.ensure_future(client.ask(maker.make(), 700)) for _ in range(clients)]
    await asyncio.sleep(3)  # their own prompts are done
    for _ in range(arrivals):
        await client.ask(maker.make(), 4)
    gaps = [
        later - earlier
        for timed in await asyncio.gather(*running)
        for earlier, later in itertools.pairwise(timed.arrivals_s[16:300])
    ]
    cuts = quantiles(gaps, n=100, method="inclusive")
    return Mixed(clients, cuts[49] * 1e3, cuts[98] * 1e3)


async def long_context(client: Client, *, tokens: int = 4000) -> LongContext:
    maker, reached = await client.maker(tokens, seed=3)
    long = [await client.ask(maker.make(), 48) for _ in range(3)]
    short_maker, _ = await client.maker(102, seed=4)
    short = [await client.ask(short_maker.make(), 48) for _ in range(3)]
    ttft_s = median(one.ttft_s for one in long)
    return LongContext(
        reached,
        reached / ttft_s,
        median(one.tpot_s for one in long) * 1e3,
        median(one.tpot_s for one in short) * 1e3,
    )


def start(served: Served) -> Start:
    server = psutil.Process(served.pid)
    processes = [server, *server.children(recursive=True)]
    return Start(served.start_s, sum(process.memory_full_info().pss for process in processes) / 1e6)


class Behaviour(msgspec.Struct, frozen=True):
    """Of one server."""

    start: Start
    prefix: Prefix
    mixed: Mixed
    long_context: LongContext


async def _measure(served: Served) -> Behaviour:
    async with httpx2.AsyncClient(timeout=600) as http:
        model = (await http.get(f"{served.url}/v1/models")).json()["data"][0]["id"]
        client = Client(http, served.url, model)
        await client.ask("warm", 32)
        started = start(served)
        return Behaviour(started, await prefix(client), await mixed(client), await long_context(client))


def behaviour() -> Behaviour:
    with serving() as served:
        return asyncio.run(_measure(served))

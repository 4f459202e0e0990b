"""Throughput and latency of servers of OpenAI's chat completions: tokens per second, TTFT and TPOT at several numbers
of clients.

Streaming, greedy, ignore_eos. Without --base-url a server with the default model is started for the measurement. With
--against, other servers are measured in the same run, taking turns, and ratios are printed: machines drift, so figures
of different runs say little of each other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from statistics import median, quantiles

import httpx2
from client import Timed, stream_once
from rich.console import Console
from rich.table import Table
from server import serving
from workload import PromptMaker


@dataclass(frozen=True)
class Shape:
    prompt_tokens: int
    max_tokens: int


@dataclass
class Measured:
    """What came of all rounds of one server at one number of clients."""

    prompt_tokens: int = 0
    """As the server counts them."""
    timed: list[Timed] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Tokens per second of each round."""

    @property
    def rate(self) -> float:
        return median(self.rates)

    def row(self, clients: int) -> list[str]:
        ttft = _percentiles_ms([one.ttft_s for one in self.timed])
        tpot = _percentiles_ms([one.tpot_s for one in self.timed])
        return [str(clients), str(len(self.timed)), str(self.prompt_tokens), f"{self.rate:.1f}", *ttft, *tpot]


async def measure(into: Measured, url: str, *, clients: int, requests: int, shape: Shape, seed: int) -> None:
    """One round: ``clients`` sending ``requests`` prompts between them, each as soon as its last ended."""
    # a connection for each request: some servers close idle ones just when the next request is sent
    limits = httpx2.Limits(max_connections=clients + 1, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as http:
        model = (await http.get(f"{url}/v1/models")).json()["data"][0]["id"]
        maker = PromptMaker(shape.prompt_tokens, seed=seed)
        into.prompt_tokens = await maker.calibrate(http, url, model)
        prompts = [maker.make() for _ in range(requests)]

        async def client() -> list[Timed]:
            results = []
            while prompts:
                prompt = prompts.pop()
                results.append(await stream_once(http, url, model=model, prompt=prompt, max_tokens=shape.max_tokens))
            return results

        started = time.perf_counter()
        timed = [one for part in await asyncio.gather(*[client() for _ in range(clients)]) for one in part]
        wall_s = time.perf_counter() - started
    into.timed += timed
    into.rates.append(sum(one.num_tokens for one in timed) / wall_s)


def _percentiles_ms(values: list[float]) -> list[str]:
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return [f"{cuts[p - 1] * 1e3:.1f}" for p in (50, 90, 99)]


def _median_ms(values: list[float]) -> float:
    return median(values) * 1e3


def _figures(title: str, measured: dict[int, Measured]) -> Table:
    table = Table(title=title)
    for name in ("clients", "requests", "prompt tokens", "tok/s"):
        table.add_column(name, justify="right")
    for name in ("TTFT", "TPOT"):
        for percentile in (50, 90, 99):
            table.add_column(f"{name} p{percentile} ms", justify="right")
    for clients, one in measured.items():
        table.add_row(*one.row(clients))
    return table


def _ratios(title: str, ours: dict[int, Measured], theirs: dict[int, Measured]) -> Table:
    """Above 1 is better for the first server in every column."""
    table = Table(title=title)
    for name in ("clients", "tok/s", "TTFT", "TPOT"):
        table.add_column(name, justify="right")
    for clients, one in ours.items():
        other = theirs[clients]
        ratios = [
            one.rate / other.rate,
            *(
                _median_ms([getattr(timed, name) for timed in other.timed])
                / _median_ms([getattr(timed, name) for timed in one.timed])
                for name in ("ttft_s", "tpot_s")
            ),
        ]
        table.add_row(str(clients), *[f"{ratio:.2f}" for ratio in ratios])
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="server to measure, without /v1; default: start one with the default model")
    parser.add_argument("--against", nargs="+", default=[], metavar="URL", help="servers to measure beside it")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=3, help="requests per client and round")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each server (default: 1, with --against 3)")
    parser.add_argument("--prompt-tokens", type=int, default=102)
    parser.add_argument("--max-tokens", type=int, default=64)
    return parser.parse_args()


async def _measure_all(urls: list[str], options: argparse.Namespace) -> dict[str, dict[int, Measured]]:
    shape = Shape(options.prompt_tokens, options.max_tokens)
    for url in urls:  # warms both sides up
        await measure(Measured(), url, clients=2, requests=4, shape=shape, seed=0)
    measured = {url: {clients: Measured() for clients in options.clients} for url in urls}
    for clients in options.clients:
        for number in range(options.rounds or (3 if options.against else 1)):
            for url in urls:
                seed, requests = 1000 * clients + number + 1, clients * options.requests
                into = measured[url][clients]
                await measure(into, url, clients=clients, requests=requests, shape=shape, seed=seed)
    return measured


def main() -> None:
    """Measure and print the tables."""
    options = _arguments()
    console = Console(width=120)
    with contextlib.ExitStack() as stack:
        url = options.base_url or stack.enter_context(serving()).url
        urls = [one.rstrip("/") for one in (url, *options.against)]
        measured = asyncio.run(_measure_all(urls, options))
    shape = f"{options.prompt_tokens}-token prompts, {options.max_tokens} new tokens, streaming, greedy"
    for one, figures in measured.items():
        console.print(_figures(f"{one}: {shape}", figures))
    for other in urls[1:]:
        console.print(_ratios(f"{urls[0]} to {other}: how many times better", measured[urls[0]], measured[other]))


if __name__ == "__main__":
    main()

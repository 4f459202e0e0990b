"""Throughput and latency of any server of this API: tokens per second, TTFT and TPOT at several numbers of clients.

Streaming, greedy, ignore_eos. Without --base-url a server with the default model is started for the measurement.
Compare figures of one run only: machines drift.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from statistics import quantiles

import httpx2
from client import Timed, stream_once
from rich.console import Console
from rich.table import Table
from server import serving
from workload import PromptMaker


async def _client_loop(
    http: httpx2.AsyncClient, url: str, model: str, prompts: list[str], max_tokens: int
) -> list[Timed]:
    results = []
    while prompts:
        results.append(await stream_once(http, url, model=model, prompt=prompts.pop(), max_tokens=max_tokens))
    return results


async def measure(url: str, *, clients: int, requests: int, prompt_tokens: int, max_tokens: int) -> list[str]:
    """One row of the table: ``clients`` sending ``requests`` prompts between them, each as soon as its last ended."""
    limits = httpx2.Limits(max_connections=clients + 1, max_keepalive_connections=clients + 1)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as http:
        model = (await http.get(f"{url}/v1/models")).json()["data"][0]["id"]
        maker = PromptMaker(prompt_tokens, seed=clients)
        reached = await maker.calibrate(http, url, model)
        prompts = [maker.make() for _ in range(requests)]
        started = time.perf_counter()
        loops = [_client_loop(http, url, model, prompts, max_tokens) for _ in range(clients)]
        timed = [one for part in await asyncio.gather(*loops) for one in part]
        wall_s = time.perf_counter() - started
    num_tokens = sum(one.num_tokens for one in timed)
    ttft = _percentiles_ms([one.ttft_s for one in timed])
    tpot = _percentiles_ms([one.tpot_s for one in timed])
    return [str(clients), str(len(timed)), str(reached), f"{num_tokens / wall_s:.1f}", *ttft, *tpot]


def _percentiles_ms(values: list[float]) -> list[str]:
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return [f"{cuts[p - 1] * 1e3:.1f}" for p in (50, 90, 99)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="server to measure, without /v1; default: start one with the default model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=3, help="requests per client")
    parser.add_argument("--prompt-tokens", type=int, default=102)
    parser.add_argument("--max-tokens", type=int, default=64)
    return parser.parse_args()


def main() -> None:
    """Measure and print the table."""
    options = _arguments()
    table = Table(title=f"{options.prompt_tokens}-token prompts, {options.max_tokens} new tokens, streaming, greedy")
    for name in ("clients", "requests", "prompt tokens", "tok/s"):
        table.add_column(name, justify="right")
    for name in ("TTFT", "TPOT"):
        for percentile in (50, 90, 99):
            table.add_column(f"{name} p{percentile} ms", justify="right")
    console = Console(width=120)
    with contextlib.ExitStack() as stack:
        url = options.base_url.rstrip("/") if options.base_url else stack.enter_context(serving()).url
        shape = {"prompt_tokens": options.prompt_tokens, "max_tokens": options.max_tokens}
        asyncio.run(measure(url, clients=2, requests=4, **shape))  # warms both sides up
        for clients in options.clients:
            requests = clients * options.requests
            table.add_row(*asyncio.run(measure(url, clients=clients, requests=requests, **shape)))
    console.print(table)


if __name__ == "__main__":
    main()

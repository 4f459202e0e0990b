"""One streamed request, timed at the socket."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx2


@dataclass(frozen=True)
class Timed:
    """Times of one request in seconds since it was sent."""

    ttft_s: float
    """To the first chunk that carries text."""
    total_s: float
    num_tokens: int
    arrivals_s: list[float]
    """Of each chunk with text."""

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first."""
        return (self.total_s - self.ttft_s) / max(1, self.num_tokens - 1)


async def stream_once(client: httpx2.AsyncClient, url: str, *, model: str, prompt: str, max_tokens: int) -> Timed:
    """Send one greedy streaming request and read it to the end.

    Raises ``RuntimeError`` when the stream ends without usage or with an error event."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.perf_counter()
    arrivals: list[float] = []
    last_data = usage = ""
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            last_data = line
            # Parsing every chunk would cost the machine that is being measured; those with text are found by eye.
            if '"content":"' in line and '"content":""' not in line:
                arrivals.append(time.perf_counter() - started)
            if '"completion_tokens"' in line:
                usage = line
    total_s = time.perf_counter() - started
    if not usage:
        raise RuntimeError(f"the stream ended without usage: {last_data[:200]}")
    num_tokens = json.loads(usage[6:])["usage"]["completion_tokens"]
    return Timed(arrivals[0] if arrivals else total_s, total_s, num_tokens, arrivals)

"""The Prometheus metrics of one server, under the names and the one label that MindIE gives them.

The label ``model_name`` holds the served names joined with " & " and never anything a client sent, so the number of
time series is fixed. Figures of media are ours, and so is their label ``kind``: image, video, audio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mindserve.observe.media import MediaTally
from mindserve.observe.rate import RateWindow
from mindserve.observe.tally import DurationTally, TokenCount

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
FIRST_TOKEN_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
NEXT_TOKEN_BUCKETS_S: Final = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 5)
TOKEN_COUNT_BUCKETS: Final = tuple(2**power for power in range(20))


class EngineFigures:
    """What is asked of the engine at each scrape: pairs of (gauge name, value) and (counter name, value)."""

    def __init__(self, *, gauges: dict[str, float], counters: dict[str, float]) -> None:
        self.gauges = gauges
        self.counters = counters


class Metrics:
    """All figures of one server in a registry of their own."""

    def __init__(
        self,
        *,
        model_names: Iterable[str],
        engine_figures: Callable[[], EngineFigures],
        media: MediaTally | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = CollectorRegistry()
        self.clock = clock
        self.model_name = " & ".join(model_names)
        self._engine_figures = engine_figures
        self._media = media or MediaTally()
        self.prompt_rate = RateWindow()
        self.generation_rate = RateWindow()
        self.num_received = 0
        self.num_failed = 0
        self.received = self._counter("request_received", "Chat requests received.")
        self.success = self._counter("request_success", "Chat requests answered completely.")
        self.failed = self._counter("request_failed", "Chat requests refused or failed.")
        self.aborted = self._counter("request_aborted", "Chat requests whose client left before the end.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = TokenCount("generation_tokens", "Tokens generated.")
        self.first_token_s = self._histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_BUCKETS_S
        )
        self.next_token_s = DurationTally(
            "time_per_output_token_seconds", "Between two tokens of a sequence.", NEXT_TOKEN_BUCKETS_S
        )
        self.latency_s = self._histogram(
            "e2e_request_latency_seconds", "From arrival to the end of a complete answer.", LATENCY_BUCKETS_S
        )
        self.request_prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a complete answer.", TOKEN_COUNT_BUCKETS
        )
        self.request_generation_tokens = self._histogram(
            "request_generation_tokens", "Generated tokens of a complete answer.", TOKEN_COUNT_BUCKETS
        )
        self.registry.register(self)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["model_name"], registry=self.registry).labels(self.model_name)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(name, text, ["model_name"], registry=self.registry, buckets=buckets)
        return family.labels(self.model_name)

    def render(self) -> bytes:
        """The text exposition of everything."""
        rendered: bytes = generate_latest(self.registry)
        return rendered

    def collect(self) -> Iterable[Metric]:
        """The figures of the moment (the registry calls this at each scrape)."""
        yield self.generation_tokens.family(self.model_name)
        yield self.next_token_s.family(self.model_name)
        yield from self._media.families(self.model_name)
        now = self.clock()
        engine = self._engine_figures()
        gauges = {
            "avg_prompt_throughput_toks_per_s": self.prompt_rate.per_second(now),
            "avg_generation_throughput_toks_per_s": self.generation_rate.per_second(now),
            "failed_request_perc": self.num_failed / self.num_received if self.num_received else 0.0,
            **engine.gauges,
        }
        for name, value in gauges.items():
            gauge = GaugeMetricFamily(name, GAUGE_TEXTS[name], labels=["model_name"])
            gauge.add_metric([self.model_name], value)
            yield gauge
        for name, value in engine.counters.items():
            counter = CounterMetricFamily(name, COUNTER_TEXTS[name], labels=["model_name"])
            counter.add_metric([self.model_name], value)
            yield counter

    def describe(self) -> Iterable[Metric]:
        """Names without values, so that registering does not ask the engine anything."""
        yield self.generation_tokens.family(self.model_name)
        yield self.next_token_s.family(self.model_name)
        yield from self._media.families(self.model_name)
        for name, text in GAUGE_TEXTS.items():
            yield GaugeMetricFamily(name, text)
        for name, text in COUNTER_TEXTS.items():
            yield CounterMetricFamily(name, text)


GAUGE_TEXTS: Final = {
    "avg_prompt_throughput_toks_per_s": "Prompt tokens per second, over the last 10 seconds.",
    "avg_generation_throughput_toks_per_s": "Generated tokens per second, over the last 10 seconds.",
    "failed_request_perc": "Share of the received chat requests that were refused or failed; 1 is all of them.",
    "num_requests_running": "Sequences the engine is working on.",
    "num_requests_waiting": "Requests waiting for the engine.",
    "num_requests_swapped": "Sequences whose cache is swapped out.",
    "npu_cache_usage_perc": "Share of the device's cache blocks in use; 1 is all of them.",
    "cpu_cache_usage_perc": "Share of the host's cache blocks in use; 1 is all of them.",
    "npu_prefix_cache_hit_rate": "Share of the prompt tokens looked up in the prefix cache that were found there.",
    "all_radix_match_num": "Prompt tokens looked up in the prefix cache.",
    "npu_radix_match_hit_num": "Prompt tokens found in the prefix cache.",
}

COUNTER_TEXTS: Final = {
    "num_preemptions": "Sequences put back to the queue for want of cache blocks.",
    "engine_restarts": "Engine processes replaced after they died or hung.",
}

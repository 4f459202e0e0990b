"""Counts that every token adds to, as plain numbers until they are asked for.

``prometheus_client``'s counters and histograms take a lock and look a bucket up one by one: three microseconds a token,
where all of a token's work is to stay below sixty. One thread counts here, so no lock is needed."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily


class TokenCount:
    """A counter."""

    __slots__ = ("_name", "_text", "total")

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.total = 0

    def family(self, model_name: str) -> CounterMetricFamily:
        family = CounterMetricFamily(self._name, self._text, labels=["model_name"])
        family.add_metric([model_name], self.total)
        return family


class DurationTally:
    """A histogram of seconds; ``bounds`` are the buckets' upper ends, each part of its bucket."""

    __slots__ = ("_bounds", "_counts", "_name", "_sum_s", "_text")

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum_s += seconds

    def family(self, model_name: str) -> HistogramMetricFamily:
        ends = [*map(str, map(float, self._bounds)), "+Inf"]
        buckets = list(zip(ends, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._text, labels=["model_name"])
        family.add_metric([model_name], buckets, self._sum_s)
        return family

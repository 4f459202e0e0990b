"""What becomes of the images, videos and recordings of requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mindserve.observe.tally import DurationTally
from mindserve_engine.types import MediaKind

DECODE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60)


class MediaTally:
    """Counted on the event loop alone."""

    def __init__(self) -> None:
        self.num_waiting = 0
        """Items whose files are there, and that no process decodes yet."""
        self.num_busy = 0
        """Processes that decode an item."""
        self.num_replaced = 0
        """Processes that a file, a deadline or a caller that left ended."""
        self.decode_s = DurationTally(
            "media_decode_seconds", "Decoding one image, video or recording, taken or refused.", DECODE_BUCKETS_S
        )
        self._refused: dict[MediaKind, int] = dict.fromkeys(MediaKind, 0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """An item waits for as long as the block takes."""
        self.num_waiting += 1
        try:
            yield
        finally:
            self.num_waiting -= 1

    def refuse(self, kind: MediaKind) -> None:
        """An item could not be had, or not be decoded."""
        self._refused[kind] += 1

    def families(self, model_name: str) -> Iterator[Metric]:
        for name, text, value in (
            ("num_media_waiting", "Images, videos and recordings that wait to be decoded.", self.num_waiting),
            ("num_media_decoding", "Processes that decode an image, a video or a recording.", self.num_busy),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["model_name"])
            gauge.add_metric([model_name], value)
            yield gauge
        replaced = CounterMetricFamily(
            "media_workers_replaced",
            "Processes that decode, ended by a file, a deadline or a client that left.",
            labels=["model_name"],
        )
        replaced.add_metric([model_name], self.num_replaced)
        yield replaced
        refused = CounterMetricFamily(
            "media_refused", "Items that could not be fetched, read or decoded.", labels=["model_name", "kind"]
        )
        for kind, count in self._refused.items():
            refused.add_metric([model_name, kind.value], count)
        yield refused
        yield self.decode_s.family(model_name)

from __future__ import annotations

import io
import logging
import re

import pytest

from mindserve.api.metrics import engine_figures
from mindserve.observe.logs import KeyValueFormatter, fields
from mindserve.observe.media import MediaTally
from mindserve.observe.metrics import EngineFigures, Metrics
from mindserve.observe.rate import WINDOW_S, RateWindow
from mindserve.observe.request import Outcome, RequestObservation
from mindserve.observe.request_id import request_uuid
from mindserve_engine.types import EngineStats, MediaKind

MINDIE_NAMES = [
    "request_received_total", "request_success_total", "request_failed_total", "num_requests_running",
    "num_requests_waiting", "num_requests_swapped", "avg_prompt_throughput_toks_per_s",
    "avg_generation_throughput_toks_per_s", "time_to_first_token_seconds", "time_per_output_token_seconds",
    "e2e_request_latency_seconds", "failed_request_perc", "request_prompt_tokens", "request_generation_tokens",
    "prompt_tokens_total", "generation_tokens_total", "npu_cache_usage_perc", "cpu_cache_usage_perc",
    "npu_prefix_cache_hit_rate", "num_preemptions_total", "all_radix_match_num", "npu_radix_match_hit_num",
]  # fmt: skip


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def figures() -> EngineFigures:
    return engine_figures(
        EngineStats(
            num_running=2, num_waiting=3, num_free_blocks=6, num_blocks=8, prefix_query_tokens_total=10,
            prefix_hit_tokens_total=4, num_preemptions_total=5,
        )
    )  # fmt: skip


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(model_names=("base", "lora"), engine_figures=figures, clock=clock)


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "base & lora"})


@pytest.mark.parametrize("name", MINDIE_NAMES)
def test_mindie_s_names_with_its_label(metrics: Metrics, name: str) -> None:
    assert re.search(rf'^{name}(_count)?\{{model_name="base & lora"\}} ', metrics.render().decode(), re.MULTILINE)


def test_no_label_comes_from_a_client(metrics: Metrics) -> None:
    names = {pair for line in metrics.render().decode().splitlines() for pair in re.findall(r'(\w+)="', line)}
    assert names == {"model_name", "le", "kind"}


def test_figures_of_media() -> None:
    """Every series is there from the start."""
    tally = MediaTally()
    metrics = Metrics(model_names=("base", "lora"), engine_figures=figures, media=tally)
    assert 'media_refused_total{kind="video",model_name="base & lora"} 0.0' in metrics.render().decode()
    tally.refuse(MediaKind.VIDEO)
    tally.num_busy, tally.num_replaced = 2, 3
    tally.decode_s.add(0.02)
    with tally.waiting(), tally.waiting():
        shown = metrics.render().decode()
    for line in (
        "num_media_waiting{} 2.0",
        "num_media_decoding{} 2.0",
        "media_workers_replaced_total{} 3.0",
        'media_decode_seconds_bucket{le="0.01",} 0.0',
        'media_decode_seconds_bucket{le="0.025",} 1.0',
        "media_decode_seconds_sum{} 0.02",
        'media_refused_total{kind="image",} 0.0',
        'media_refused_total{kind="video",} 1.0',
        'media_refused_total{kind="audio",} 0.0',
    ):
        assert line.replace("}", 'model_name="base & lora"}') in shown
    assert value(metrics, "num_media_waiting") == 0


def test_figures_of_the_engine(metrics: Metrics) -> None:
    assert value(metrics, "num_requests_running") == 2
    assert value(metrics, "num_requests_waiting") == 3
    assert value(metrics, "npu_cache_usage_perc") == 0.25
    assert value(metrics, "npu_prefix_cache_hit_rate") == 0.4
    assert value(metrics, "num_preemptions_total") == 5


def test_a_successful_request(metrics: Metrics, clock: Clock) -> None:
    seen = RequestObservation(metrics)
    clock.now += 0.5
    seen.tokens(index=0, num_tokens=1, num_prompt_tokens=20)
    clock.now += 0.2
    seen.tokens(index=0, num_tokens=2, num_prompt_tokens=20)
    seen.end(Outcome.SUCCESS)
    seen.end(Outcome.FAILED)
    assert value(metrics, "request_success_total") == 1
    assert value(metrics, "request_failed_total") == 0
    assert value(metrics, "time_to_first_token_seconds_sum") == pytest.approx(0.5)
    assert value(metrics, "time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(0.7)
    assert value(metrics, "prompt_tokens_total") == 20
    assert value(metrics, "generation_tokens_total") == 3
    assert value(metrics, "request_prompt_tokens_sum") == 20
    assert value(metrics, "request_generation_tokens_sum") == 3
    assert value(metrics, "avg_generation_throughput_toks_per_s") == pytest.approx(3 / WINDOW_S)
    assert value(metrics, "avg_prompt_throughput_toks_per_s") == pytest.approx(20 / WINDOW_S)
    clock.now += WINDOW_S + 1
    assert value(metrics, "avg_generation_throughput_toks_per_s") == 0


def test_failures_and_departures(metrics: Metrics) -> None:
    for outcome in (Outcome.FAILED, Outcome.ABORTED, Outcome.SUCCESS, Outcome.SUCCESS):
        RequestObservation(metrics).end(outcome)
    assert value(metrics, "request_received_total") == 4
    assert value(metrics, "request_failed_total") == 1
    assert value(metrics, "request_aborted_total") == 1
    assert value(metrics, "failed_request_perc") == 0.25
    assert value(metrics, "e2e_request_latency_seconds_count") == 2


def test_a_rate_forgets() -> None:
    rate = RateWindow()
    rate.add(10, 0.5)
    rate.add(10, 0.9)
    rate.add(5, 3.0)
    assert rate.per_second(3.0) == 25 / WINDOW_S
    assert rate.per_second(WINDOW_S + 0.1) == 5 / WINDOW_S
    assert rate.per_second(WINDOW_S + 10.0) == 0


@pytest.mark.parametrize("given", ["abc-1", "A.b:c_9", "x" * 128])
def test_plain_ids_are_kept(given: str) -> None:
    assert request_uuid(given) == given


@pytest.mark.parametrize("given", [None, "", "x" * 129, 'a"b', "a b", "a\nb", "é"])
def test_other_ids_are_replaced(given: str | None) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", request_uuid(given))


def test_log_lines() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(KeyValueFormatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.info("it's done", extra=fields(request="r-1", elapsed_s=0.123456789, note='a "b"\nevent=forged'))
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("broken")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(
        r'time=\S+Z level=info logger=test event="it\'s done" request=r-1 elapsed_s=0.123457 '
        r'note="a \\"b\\"\\nevent=forged"',
        first,
    )
    assert "traceback=" in second

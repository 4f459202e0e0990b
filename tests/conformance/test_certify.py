"""Our own server keeps the contract: with the scripted engine in every case, with the default model where it counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.conformance.certify import (
    COMPUTED_CASES,
    KEY,
    Setup,
    certify,
    default_openai_setup,
    default_setup,
    scripted_setup,
)

COMPUTED: Final = ("whole.*", "stream.*", "golden.stream-two-sequences.shape", "request.n.at-maximum", "plane.m*")
"""Cases that the model's arithmetic bears upon. ``make conformance`` asks it all of them."""


MEDIA: Final = frozenset({"image", "video", "audio"})


def _certified(setup: Setup, out: Path) -> tuple[dict[str, Any], Counter[str]]:
    status = certify(setup, out)
    document = yaml.safe_load((out / "results.yaml").read_text("utf-8"))
    odd = [case for case in document["cases"] if case["result"] not in ("pass", "unsupported")]
    assert odd == []
    assert status == 0
    return document, Counter(case["result"] for case in document["cases"])


@pytest.mark.timeout(900)  # over a thousand cases
def test_the_scripted_engine(tmp_path: Path) -> None:
    document, counts = _certified(scripted_setup(tmp_path), tmp_path / "out")
    able = {name for name, one in document["capabilities"].items() if one["present"]}
    assert able >= {
        "scripted",
        "several",
        "beam",
        "logprobs",
        "lora",
        "tool-history",
        "body-limit",
        "prompt-limit",
        "token-limit",
        *MEDIA,
    }
    assert counts["pass"] > 980


def test_cumulative_text(tmp_path: Path) -> None:
    document, _ = _certified(scripted_setup(tmp_path, full_text=True), tmp_path / "out")
    results = {case["id"]: case["result"] for case in document["cases"]}
    assert results["golden.stream-full-text"] == results["stream.full-text"] == "pass"


def test_a_model_that_thinks(tmp_path: Path) -> None:
    document, counts = _certified(scripted_setup(tmp_path, thinks=True), tmp_path / "out")
    assert {name for name, one in document["capabilities"].items() if one["present"]} >= {"scripted", "reasoning"}
    assert counts.keys() == {"pass"}
    assert counts["pass"] > 10


@pytest.mark.timeout(900)
def test_the_openai_dialect_behind_a_key(tmp_path: Path) -> None:
    setup = scripted_setup(tmp_path, dialect="openai", key=KEY)
    document, counts = _certified(setup, tmp_path / "out")
    assert document["dialect"] == "openai"
    able = {name for name, one in document["capabilities"].items() if one["present"]}
    assert (
        able >= {"scripted", "several", "beam", "logprobs", "tools", "constrained", "api-key", "prompt-limit"} | MEDIA
    )
    assert counts["pass"] > 1040
    assert KEY not in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_a_model_that_thinks_in_the_openai_dialect(tmp_path: Path) -> None:
    document, counts = _certified(scripted_setup(tmp_path, dialect="openai", thinks=True), tmp_path / "out")
    assert "openai.stream.usage.reasoning" in {case["id"] for case in document["cases"]}
    assert counts.keys() == {"pass"}


@pytest.mark.parametrize("dialect", ["vllm", "openai"])
def test_a_model_of_text_alone(tmp_path: Path, dialect: str) -> None:
    document, counts = _certified(scripted_setup(tmp_path, takes_media=False, dialect=dialect), tmp_path / "out")
    assert not any(document["capabilities"][name]["present"] for name in MEDIA)
    results = {case["id"]: case["result"] for case in document["cases"]}
    assert {result for name, result in results.items() if name.startswith("media.")} == {"unsupported"}
    assert {results[f"feature.{name}"] for name in MEDIA} == {"pass"}
    assert counts["pass"] > 60


@pytest.mark.usefixtures("default_model")
def test_the_default_model_in_the_openai_dialect(tmp_path: Path) -> None:
    document, _ = _certified(default_openai_setup(tmp_path, *COMPUTED_CASES), tmp_path / "out")
    results = {case["id"]: case["result"] for case in document["cases"]}
    for name in ("logit_bias.rules-out", "logit_bias.asks-for", "stream.usage", "no-effect", "several-greedy"):
        assert results[f"openai.{name}"] == "pass"


@pytest.mark.usefixtures("default_model")
def test_the_default_model(tmp_path: Path) -> None:
    document, counts = _certified(default_setup(*COMPUTED), tmp_path / "out")
    able = {name for name, one in document["capabilities"].items() if one["present"]}
    assert able >= {"several", "beam", "logprobs", "deterministic", "reproducible"}
    assert counts["pass"] > 25

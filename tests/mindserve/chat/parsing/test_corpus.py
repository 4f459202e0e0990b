"""Texts of each family, cut in every way: the pieces joined are those of the whole text, and what they should be."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from mindserve.chat.parsing.formats import PARSERS
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call, Piece, PieceList, Reasoning
from mindserve.chat.parsing.toolbox import Toolbox

CORPUS = Path(__file__).parent / "corpus"
FAMILIES = {
    "hermes": "hermes",
    "qwen2_5_coder": "qwen2_5_coder",
    "qwen3_coder": "qwen3_coder",
    "glm4": "glm_4",
    "chatglm3": "chatglm3",
    "llama3_json": "llama3_1",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v31": "deepseek_v31",
}
"""Files of the corpus, and the parsers they are for."""
PARAMETERS = {
    "city": {"type": "string"},
    "unit": {"type": "string"},
    "unit2": {"enum": ["1", "2"]},
    "note": {"type": ["string"]},
    "n": {"type": "integer"},
    "ok": {"type": "boolean"},
    "o": {"type": "object"},
    "items": {"type": "array"},
    "open": {},
}
TOOLS = Toolbox([("pick_city", {"properties": PARAMETERS}), ("now", {}), ("天气", {}), ("get-time.v2", {})])
NUM_RANDOM_CUTS = 40


def cases(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load((CORPUS / f"{name}.yaml").read_text("utf-8"))
    return loaded


def parse(family: str, case: dict[str, Any], parts: list[str]) -> list[Piece]:
    parser = AnswerParser(
        calls=CallFormat(PARSERS[FAMILIES[family]], TOOLS), has_reasoning=True, in_reasoning="in_reasoning" in case
    )
    pieces = PieceList()
    for part in parts:
        pieces.add(parser.feed(part))
    pieces.add(parser.finish(is_whole="cut" not in case))
    return pieces.take()


def outcome(pieces: list[Piece]) -> dict[str, Any]:
    return {
        "reasoning": "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)),
        "content": "".join(piece.text for piece in pieces if not isinstance(piece, Call | Reasoning)),
        "calls": [{"name": piece.name, "arguments": piece.arguments} for piece in pieces if isinstance(piece, Call)],
    }


def test_every_file_is_used() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(FAMILIES)
    assert {PARSERS[name].name for name in FAMILIES.values()} == {family.name for family in PARSERS.values()}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_becomes_of_each_text(family: str) -> None:
    corpus = cases(family)
    assert len(corpus) >= 60
    for case in corpus:
        expected = {key: case.get(key, "") for key in ("reasoning", "content", "calls")}
        assert outcome(parse(family, case, [case["text"]])) == expected, case["name"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_cut_in_two(family: str) -> None:
    for case in cases(family):
        text = case["text"]
        whole = parse(family, case, [text])
        for cut in range(len(text) + 1):
            assert parse(family, case, [text[:cut], text[cut:]]) == whole, (case["name"], cut)


@pytest.mark.parametrize("family", FAMILIES)
def test_cuts_in_many(family: str) -> None:
    """Among them the one into single characters."""
    random_numbers = random.Random(17)
    for case in cases(family):
        text = case["text"]
        whole = parse(family, case, [text])
        assert parse(family, case, list(text)) == whole, case["name"]
        for _ in range(NUM_RANDOM_CUTS):
            edges = sorted(random_numbers.choices(range(len(text) + 1), k=random_numbers.randint(2, 12)))
            parts = [text[begin:end] for begin, end in itertools.pairwise([0, *edges, len(text)])]
            assert parse(family, case, parts) == whole, (case["name"], edges)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_of_another_family_is_split_alike_too(family: str) -> None:
    """Whatever a model writes: how it was cut makes no difference, and where there is no call nothing is lost."""
    for other in FAMILIES:
        for case in cases(other):
            whole = parse(family, case, [case["text"]])
            assert parse(family, case, list(case["text"])) == whole
            is_plain = "think" not in case["text"] and "<|assistant|>" not in case["text"]
            if is_plain and not any(isinstance(piece, Call) for piece in whole):
                assert "".join(piece.text for piece in whole if not isinstance(piece, Call)) == case["text"]

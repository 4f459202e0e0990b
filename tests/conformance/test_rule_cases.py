"""Every x-rule over real HTTP: the request that breaks it is refused by name, the one that keeps it is answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import pytest

from conformance.rule_cases import load_rule_cases, rule_pair_cases
from mindserve.api._generated.rules import RULES
from mindserve.api.dialect.vllm import VllmDialect
from tests.serving import MODEL, running, scripted_model

CHAT = "/v1/chat/completions"
VLLM = VllmDialect()
CASES = load_rule_cases(MODEL)


def test_rules_and_cases_are_the_same_set() -> None:
    assert sorted(case.rule for case in CASES) == sorted(VLLM.rules)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_server_keeps_every_rule(tmp_path: Path, stream: bool) -> None:
    model = scripted_model(tmp_path, [{"default": True, "pieces": ["Hello", "!"]}], max_context=65536)
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        for case in CASES:
            # Some rules speak of one way of answering only; their cases say which.
            breaks = {"stream": stream, **case.breaks} if case.rule != "best-of-below-n" else case.breaks
            refused = await client.post(CHAT, json=breaks)
            assert refused.status_code == httpx2.codes.UNPROCESSABLE_CONTENT, case.rule
            assert refused.json().keys() == {"error", "error_type"}
            assert _message_of(case.rule).search(refused.json()["error"]), (case.rule, refused.text)
            assert case.field in refused.json()["error"], (case.rule, refused.text)
            kept = await client.post(CHAT, json={"stream": stream, **case.keeps})
            if kept.status_code != httpx2.codes.OK:
                assert case.unless, (case.rule, kept.text)
                assert kept.json()["error"].startswith(case.unless), (case.rule, kept.text)


@pytest.mark.parametrize(
    ("rule", "keeps", "breaks", "word"),
    [
        ("tool-call-arguments-values", '"b": 1}', '"b": 1, "c": 1}', "values"),
        ("messages-text-length", "aaaa", "aaaaa", "characters"),
    ],
)
async def test_a_border_is_one_step_from_what_breaks_the_rule(
    tmp_path: Path, rule: str, keeps: str, breaks: str, word: str
) -> None:
    """What is refused of a request at the border is its number of tokens, if anything."""
    [case] = [case for case in rule_pair_cases() if case.id == f"rules.{rule}.border"]
    assert case.call.change is not None
    text = json.dumps(case.call.change.body(MODEL))
    within, beyond = json.loads(text), json.loads(text.replace(json.dumps(keeps)[1:-1], json.dumps(breaks)[1:-1], 1))
    model = scripted_model(tmp_path, [{"default": True, "pieces": ["Hello", "!"]}], max_context=65536)
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        for body, is_kept in ((within, True), (beyond, False)):
            answer = await client.post(CHAT, json=body)
            assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
            assert ("tokens" in answer.json()["error"]) is is_kept, answer.text
            assert (word in answer.json()["error"]) is not is_kept, answer.text


def _message_of(rule: str) -> re.Pattern[str]:
    """The rule's message with anything in its placeholders."""
    parts = re.split(r"\{[a-z_]+\}", RULES[rule].message)
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)

"""Profiles and case files: what is wrong in them is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.files import PROFILES, SuiteError
from conformance.load import cases_of
from conformance.profile import load_profile
from conformance.run import limits_of
from conformance.settings import Settings


@pytest.mark.parametrize("name", [path.stem for path in PROFILES.glob("*.yaml")])
def test_shipped_profiles_are_right(name: str) -> None:
    assert load_profile(name).dialect == ("openai" if "openai" in name else "vllm")


def _written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "profile.yaml"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dialect: mindie", "dialect"),
        ("capabilities: {magic: true}", "capabilities.magic"),
        ("capabilities: {tools: 1}", "capabilities.tools"),
        ("pacing: {concurrency: 0}", "pacing.concurrency"),
        ("timeouts: {request_s: 0}", "timeouts.request_s"),
        ("limits: {max_prompt_tokens: 0}", "limits.max_prompt_tokens"),
        ("limits: {max_tokens: true}", "limits.max_tokens"),
        ("limits: {likely_token: -1}", "limits.likely_token"),
        ("no_such_key: 1", "no_such_key"),
        ("[1]", "the profile"),
        ("a: [", "not a YAML file"),
    ],
)
def test_faults_of_profiles_are_told(tmp_path: Path, text: str, words: str) -> None:
    path = _written(tmp_path, text)
    with pytest.raises(SuiteError, match=words) as raised:
        load_profile(path)
    assert path in str(raised.value)


def test_a_profile_that_is_not_there_is_told() -> None:
    with pytest.raises(SuiteError, match="No such file"):
        load_profile("/nowhere/profile.yaml")


def test_settings_win_over_the_profile_and_that_over_the_suite(tmp_path: Path) -> None:
    profile = load_profile(_written(tmp_path, "pacing: {concurrency: 2, rate: 5}\ntimeouts: {request_s: 9}"))
    told = limits_of(Settings(base_url="http://x", model="m", profile=profile, concurrency=7))
    assert (told.concurrency, told.rate, told.request_timeout_s) == (7, 5, 9)
    assert limits_of(Settings(base_url="http://x", model="m")).concurrency == 4


GOOD = "theme: t\ncases:\n  - {id: t.a, says: x, expect: {answer: true}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("says", "sais"), "says"),
        (GOOD.replace("answer: true", "unless: x"), "t.a"),
        (GOOD.replace("says: x", "says: x, level: MAY"), "level"),
        (GOOD.replace("says: x", "says: x, request: {base: nope}"), "nope"),
        (GOOD.replace("t.a", "T a"), "id"),
        (GOOD.replace("says: x", "says: x, dialects: [mindie]"), "dialects"),
        (GOOD.replace("answer: true", "refused: {vllm: 422}").replace("says", "dialects: [openai], says"), "openai"),
    ],
)
def test_faults_of_case_files_are_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(SuiteError, match=words):
        [*cases_of(path), *cases_of(path, "openai")]


def test_a_case_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(GOOD, "utf-8")
    assert [case.id for case in cases_of(path)] == ["t.a"]


REFUSED = """theme: t
cases:
  - {id: t.both, says: x, expect: {refused: 422}}
  - {id: t.openai, dialects: [openai], says: x, expect: {refused: 404}}
  - {id: t.by-dialect, says: x, expect: {refused: {vllm: 422, openai: 404}}}
  - {id: t.header, says: x, request: {headers: {x-mindserve-dialect: vllm}}, expect: {refused: 422}}
"""


def test_cases_hold_in_their_dialects_with_the_statuses_of_these(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(REFUSED, "utf-8")
    told = {name: {case.id: case.expect.status for case in cases_of(path, name)} for name in ("vllm", "openai")}
    assert told["vllm"] == {"t.both": 422, "t.by-dialect": 422, "t.header": 422}
    assert told["openai"] == {"t.both": 400, "t.openai": 404, "t.by-dialect": 404, "t.header": 422}

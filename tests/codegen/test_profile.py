"""The lint refuses every construct that the generator would lose, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.diagnostics import SpecRefused
from codegen.document import load
from codegen.outputs import generate
from codegen.profile import CODES, lint
from codegen.profile.traceability import Vocabulary, vocabulary

SPECS = Path(__file__).with_name("specs")
GOOD = sorted(SPECS.glob("*.yaml"))
BAD = sorted((SPECS / "bad").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_refuses_exactly_the_faults_that_the_spec_was_written_for(path: Path) -> None:
    expected = set(re.findall(r"^# refused: (\S+) (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    found = {(fault.code, fault.pointer) for fault in lint(load(path).data, vocabulary(path))}
    assert found == expected


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_has_nothing_to_say_about_what_the_generator_carries(path: Path) -> None:
    assert lint(load(path).data, vocabulary(path)) == []


def test_every_code_of_the_profile_is_proved_by_a_bad_spec() -> None:
    texts = [path.read_text(encoding="utf-8") for path in BAD]
    assert {code for text in texts for code in re.findall(r"^# refused: (\S+) ", text, re.MULTILINE)} == set(CODES)


def test_a_reading_that_no_document_numbers_is_refused() -> None:
    words = Vocabulary(extensions=None, interpretations=frozenset({"R1", "R2", "R3"}))
    faults = lint(load(SPECS / "rules.yaml").data, words)
    assert [(fault.code, fault.message) for fault in faults] == [
        ("interpretation", "'R4' is not in docs/interpretations.md")
    ]


def test_all_faults_of_both_specs_are_told_at_once(tmp_path: Path) -> None:
    spec = tmp_path / "openapi.yaml"
    spec.write_text((SPECS / "bad" / "a06_wide_integer.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    spec.with_name("config.schema.yaml").write_text(
        "title: Config\ndescription: d\ntype: object\nproperties: {a: {type: integer, dependencies: {}}}\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecRefused) as refusal:
        generate(spec)
    assert [(fault.file, fault.code) for fault in refusal.value.diagnostics] == [
        ("config.schema.yaml", "description"),
        ("config.schema.yaml", "lost"),
        ("openapi.yaml", "A6"),
        ("openapi.yaml", "A6"),
    ]
    assert "openapi.yaml#/components/schemas/Request/properties/a/maximum: A6: " in str(refusal.value)

"""What the page on clients says is so: of the client that is at hand by trying it, of all of them by its own rules."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata

import pytest

from mindserve.config.settings import Dialect
from tests.clients.matrix import CLIENTS, PAGE, Client, tried, unexplained, version
from tests.clients.page import Cell, Note, Notes, page, read_notes, told_by
from tests.clients.server import serving

OPENAI = CLIENTS[0]
A, B = Cell("one", "whole", Dialect.VLLM), Cell("one", "stream", Dialect.VLLM)
NOTES = Notes(
    introduction="Some clients.",
    meanings={"whole": "all", "stream": "pieces"},
    absent={"stream": "it has none"},
    failures={A: Note("bad", "because")},
)


@pytest.mark.parametrize("dialect", Dialect)
async def test_the_openai_package_does_what_the_page_says(dialect: Dialect) -> None:
    async with serving(dialect) as live:
        found = await tried(OPENAI, live.url, sys.executable)
    told = told_by(PAGE.read_text("utf-8"))
    assert {what: not problem for what, problem in found.items()} == {
        cell.what: works for cell, works in told.items() if (cell.client, cell.dialect) == (OPENAI.name, dialect)
    }
    notes = read_notes()
    for what, problem in found.items():
        if problem:
            assert notes.failures[Cell(OPENAI.name, what, dialect)].says in problem


def test_the_page_is_of_these_clients_in_these_versions() -> None:
    text = PAGE.read_text("utf-8")
    for client in CLIENTS:
        assert f"| {client.name} {version(client)} |" in text
    assert version(OPENAI) == metadata.version("openai")  # the one that the test above tries
    assert {cell.client for cell in told_by(text)} == {client.name for client in CLIENTS}


def test_the_page_is_what_its_results_and_the_notes_give() -> None:
    text, notes = PAGE.read_text("utf-8"), read_notes()
    found = {cell: "" if works else notes.failures[cell].says or "?" for cell, works in told_by(text).items()}
    assert unexplained(found, notes) == []
    assert page({client.name: version(client) for client in CLIENTS}, found, notes) == text


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({A: "bad thing", B: ""}, None),
        ({A: "bad thing"}, None),
        ({A: "", B: ""}, "works, though notes.yaml says it does not"),
        ({A: "other", B: ""}, "other"),
        ({A: "bad", B: "bad"}, "bad"),
        ({B: ""}, "nothing attempts it"),
        ({A: "bad", B: "", Cell("two", "stream", Dialect.VLLM): ""}, "two, whole: was not attempted"),
    ],
)
def test_a_blank_without_a_reason_is_a_fault(found: dict[Cell, str], fault: str | None) -> None:
    faults = unexplained(found, NOTES)
    assert faults == [] if fault is None else fault in "\n".join(faults)


def test_a_page_can_be_read_again() -> None:
    found = {Cell("one", what, dialect): "" for what in NOTES.meanings for dialect in Dialect}
    found |= {A: "bad", Cell("a third", "whole", Dialect.VLLM): ""}
    text = page({"one": "1.0", "a third": "2"}, found, replace(NOTES, absent=dict.fromkeys(NOTES.meanings, "none")))
    assert told_by(text) == {cell: not problem for cell, problem in found.items()}
    assert "| whole | **no** (1) | yes |" in text
    assert "1. because\n2. none\n" in text


async def test_a_program_that_fails_is_no_result() -> None:
    with pytest.raises(RuntimeError, match=r"missing\.py ended with status 2"):
        await tried(Client("x", "x", "python/missing.py"), "http://127.0.0.1:1", sys.executable)

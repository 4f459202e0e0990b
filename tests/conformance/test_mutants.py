"""Deliberately wrong servers, one fault each: the suite finds each of them, by the case that names the fault.

A fault that survives means that the suite would certify a server that has it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio

from conformance.capabilities import capability_names
from conformance.case import Kind, Level
from conformance.catalogue import all_cases
from conformance.oracle.registry import INVARIANTS
from conformance.profile import Profile
from conformance.results import CaseResult, Result
from conformance.script import script
from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from tests import tiny_models
from tests.conformance.mutants import (
    bodies,
    defaults,
    features,
    lacking,
    media,
    openai_wire,
    refusals,
    streams,
    validation,
)
from tests.conformance.mutants.faults import Mutant, refusal
from tests.conformance.mutants.place import MAX_REQUEST_BYTES, MAX_TOKENS, Place, place_before
from tests.conformance.mutants.proxy import CHAT, Answer, Fault, Forward, Question, no_fault
from tests.serving import HELLO, Model, scripted_model

MUTANTS: Final = (
    *streams.MUTANTS, *bodies.MUTANTS, *validation.MUTANTS, *refusals.MUTANTS, *features.MUTANTS, *lacking.MUTANTS,
    *defaults.SCRIPTED,
)  # fmt: skip
ALL: Final = (*MUTANTS, *defaults.COMPUTED, *openai_wire.MUTANTS, *openai_wire.COMPUTED, *media.MUTANTS)
"""Those of the other dialect, and of a model that takes media, have modules of their own."""
NEEDED: Final = frozenset(
    {
        "several",
        "beam",
        "logprobs",
        "deterministic",
        "reproducible",
        "scripted",
        "body-limit",
        "prompt-limit",
        "token-limit",
        "tool-history",
        "incremental",
        "tools",
        "constrained",
    }
)
"""What the good server can do, and the named cases need."""
COMPUTING: Final = frozenset({"several", "beam", "logprobs", "deterministic", "reproducible", "varied"})
LIMITS: Final = {
    "max_body_bytes": MAX_REQUEST_BYTES, "max_tokens": MAX_TOKENS, "max_prompt_tokens": 1 << 20,
}  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    silence = {"contains": refusals.SILENCE, "pieces": ["x"], "hang_after": 0}
    model = scripted_model(tmp_path_factory.mktemp("model"), [silence, *script()])
    async with place_before(model, NEEDED) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def computing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A tiny model with random weights in a process of its own."""
    folder = tiny_models.build("llama", tmp_path_factory.mktemp("tiny"))
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
    async with place_before(Model(NativeEngine(options), load_tokenizer(folder)), COMPUTING) as made:
        yield made


async def test_without_a_fault_every_case_passes(place: Place) -> None:
    """So it is the fault that is found below, and not the place where it sits."""
    report = await place.run(no_fault, Profile(**LIMITS))
    wrong = [one for one in report.cases if one.result not in (Result.PASS, Result.UNSUPPORTED)]
    assert [(one.case.id, one.result, one.message) for one in wrong] == []
    assert {name for name, capability in report.capabilities.items() if capability.present} == NEEDED


@pytest.mark.parametrize("case", features.GOOD)
async def test_features_without_a_fault_pass(place: Place, case: str) -> None:
    fault, added = features.GOOD[case]
    result = await place.result_of(Mutant("none", fault, case, "", added))
    assert result.result is Result.PASS, result.message


@pytest.mark.parametrize("case", sorted({mutant.case for mutant in defaults.COMPUTED}))
async def test_an_engine_that_computes_passes_without_a_fault(computing: Place, case: str) -> None:
    result = await computing.result_of(Mutant("none", no_fault, case, ""))
    assert result.result is Result.PASS, result.message


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
async def test_the_fault_is_found(place: Place, mutant: Mutant) -> None:
    check(mutant, await place.result_of(mutant))


@pytest.mark.parametrize("mutant", defaults.COMPUTED, ids=[mutant.name for mutant in defaults.COMPUTED])
async def test_the_fault_of_an_engine_that_computes_is_found(computing: Place, mutant: Mutant) -> None:
    check(mutant, await computing.result_of(mutant))


def check(mutant: Mutant, found: CaseResult) -> None:
    assert mutant.invariant in found.invariants, (found.result, found.message)
    is_must = found.case.level is Level.MUST and INVARIANTS[mutant.invariant].level is Level.MUST
    assert found.result is Result.FAIL if is_must else found.result in (Result.FAIL, Result.WARN), found.message


@pytest.mark.parametrize(
    ("text", "status", "present", "results"),
    [
        ("n must be 1: there is one sequence", 422, False, (Result.UNSUPPORTED, Result.PASS)),
        ("that cannot be done", 422, True, (Result.FAIL, Result.WARN)),
        ("n must be 1: there is one sequence", 400, True, (Result.FAIL, Result.WARN)),
        ("n must be 1: there is one sequence", 404, True, (Result.FAIL, Result.WARN)),
    ],
)
async def test_only_a_refusal_that_names_the_field_is_a_lack(
    place: Place, text: str, status: int, present: bool, results: tuple[Result, Result]
) -> None:
    """C19. Whoever refuses in another way is asked, and found out."""
    only = frozenset({"whole.several", "feature.several"})
    report = await place.run(lacking.refusing_several(text, status), Profile(), only)
    assert report.capabilities["several"].present is present, report.capabilities["several"].evidence
    told = {one.case.id: one.result for one in report.cases}
    assert (told["whole.several"], told["feature.several"]) == results


async def _takes_everything(question: Question, forward: Forward) -> Answer:
    """Whatever is asked in the chat, a plain request is answered."""
    if question.path != CHAT:
        return await forward(question)
    body = {**HELLO, "max_tokens": 1}
    return await forward(replace(question, method="POST", headers=[], body=json.dumps(body).encode()))


async def _refuses_everything(question: Question, forward: Forward) -> Answer:
    return refusal("nothing is taken here")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(_takes_everything, Kind.REFUSED), (_refuses_everything, Kind.ANSWER)],
    ids=["takes everything", "refuses everything"],
)
async def test_no_case_passes_whatever_is_answered(place: Place, fault: Fault, kind: Kind) -> None:
    profile = Profile(**LIMITS, capabilities=dict.fromkeys(capability_names(), True), adapter="tuned")
    only = frozenset(case.id for case in all_cases() if case.expect.kind is kind and case.call.path == CHAT)
    report = await place.run(fault, profile, only)
    assert len(report.cases) > 100
    assert [one.case.id for one in report.cases if one.result not in (Result.FAIL, Result.WARN)] == []


async def test_every_fault_is_another() -> None:
    assert len(ALL) >= 45
    assert [name for name, count in Counter(mutant.name for mutant in ALL).items() if count > 1] == []
    assert len({mutant.fault for mutant in ALL}) == len(ALL)


async def test_every_invariant_is_broken_by_some_fault() -> None:
    """One that no server breaks may be one that cannot find anything."""
    assert all_cases()
    assert set(INVARIANTS) - {mutant.invariant for mutant in ALL} == set()

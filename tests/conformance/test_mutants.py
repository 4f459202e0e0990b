"""Deliberately wrong servers, one fault each: the suite finds each of them, by the case that names the fault.

A fault that survives means that the suite would certify a server that has it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
import pytest_asyncio

from conformance.capabilities import capability_names
from conformance.case import Kind, Level
from conformance.catalogue import all_cases
from conformance.oracle.registry import INVARIANTS
from conformance.profile import Profile
from conformance.results import CaseResult, Report, Result
from conformance.run import run_suite
from conformance.script import script
from conformance.settings import Settings
from mindserve.config.settings import ServeSettings
from tests.conformance.mutants import bodies, features, refusals, streams, validation
from tests.conformance.mutants.faults import Mutant, refusal
from tests.conformance.mutants.proxy import CHAT, Answer, Fault, Forward, Proxy, Question, no_fault
from tests.serving import HELLO, MODEL, Live, running, scripted_model

MUTANTS: Final = (*streams.MUTANTS, *bodies.MUTANTS, *validation.MUTANTS, *refusals.MUTANTS, *features.MUTANTS)
MAX_REQUEST_BYTES: Final = 40 << 20
NEEDED: Final = frozenset(
    {
        "several",
        "beam",
        "logprobs",
        "deterministic",
        "reproducible",
        "scripted",
        "body-limit",
        "tool-history",
        "incremental",
        "tools",
        "constrained",
    }
)
"""What the good server can do, and the named cases need."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Place:
    """The good server with room for a fault in front of it."""

    live: Live
    proxy: Proxy

    async def run(self, fault: Fault, profile: Profile, only: frozenset[str] | None = None, **bounds: Any) -> Report:
        settings = Settings(base_url=self.live.url, model=MODEL, only=only, profile=profile, **bounds)
        with self.proxy.having(fault):
            return await run_suite(settings)

    async def result_of(self, case: str, fault: Fault, features: frozenset[str], **bounds: Any) -> CaseResult:
        """What the server can do is not found out: a fault may hide it."""
        capabilities = {name: name in NEEDED | features for name in capability_names()}
        profile = Profile(max_body_bytes=MAX_REQUEST_BYTES, capabilities=capabilities)
        [result] = (await self.run(fault, profile, frozenset({case}), **bounds)).cases
        return result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    proxies: list[Proxy] = []

    def around(app: object) -> Proxy:
        proxies.append(Proxy(app))
        return proxies[0]

    silence = {"contains": refusals.SILENCE, "pieces": ["x"], "hang_after": 0}
    model = scripted_model(tmp_path_factory.mktemp("model"), [silence, *script()])
    settings = ServeSettings(model_name=MODEL, max_request_bytes=MAX_REQUEST_BYTES)
    async with running(model, settings, around=around) as live:
        yield Place(live, proxies[0])


async def test_without_a_fault_every_case_passes(place: Place) -> None:
    """So it is the fault that is found below, and not the place where it sits."""
    report = await place.run(no_fault, Profile(max_body_bytes=MAX_REQUEST_BYTES))
    wrong = [one for one in report.cases if one.result not in (Result.PASS, Result.UNSUPPORTED)]
    assert [(one.case.id, one.result, one.message) for one in wrong] == []
    assert {name for name, capability in report.capabilities.items() if capability.present} == NEEDED


@pytest.mark.parametrize("case", features.GOOD)
async def test_features_without_a_fault_pass(place: Place, case: str) -> None:
    fault, added = features.GOOD[case]
    result = await place.result_of(case, fault, added)
    assert result.result is Result.PASS, result.message


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
async def test_the_fault_is_found(place: Place, mutant: Mutant) -> None:
    found = await place.result_of(mutant.case, mutant.fault, mutant.features, **mutant.bounds)
    assert mutant.invariant in found.invariants, (found.result, found.message)
    is_must = found.case.level is Level.MUST and INVARIANTS[mutant.invariant].level is Level.MUST
    assert found.result is Result.FAIL if is_must else found.result in (Result.FAIL, Result.WARN), found.message


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
    profile = Profile(
        max_body_bytes=MAX_REQUEST_BYTES, capabilities=dict.fromkeys(capability_names(), True), adapter="tuned"
    )
    only = frozenset(case.id for case in all_cases() if case.expect.kind is kind and case.call.path == CHAT)
    report = await place.run(fault, profile, only)
    assert len(report.cases) > 100
    assert [one.case.id for one in report.cases if one.result not in (Result.FAIL, Result.WARN)] == []


async def test_every_fault_is_another() -> None:
    assert len(MUTANTS) >= 45
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    assert len({mutant.fault for mutant in MUTANTS}) == len(MUTANTS)


async def test_every_invariant_is_broken_by_some_fault() -> None:
    """One that no server breaks may be one that cannot find anything."""
    assert all_cases()
    assert set(INVARIANTS) - {mutant.invariant for mutant in MUTANTS} == set()

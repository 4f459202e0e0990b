"""Deliberately wrong servers of a model that takes media, each found by the case that names its fault."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from conformance.profile import Profile
from conformance.results import Exit, Result
from conformance.script import script
from tests.conformance.mutants import media
from tests.conformance.mutants.faults import Mutant, refusing
from tests.conformance.mutants.place import Place, place_before
from tests.conformance.mutants.proxy import no_fault
from tests.conformance.test_mutants import LIMITS, NEEDED, check
from tests.serving import scripted_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS = frozenset({"image", "video", "audio"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    model = scripted_model(tmp_path_factory.mktemp("model"), {"media": True, "replies": script()})
    async with place_before(model, NEEDED | KINDS) as made:
        yield made


async def test_without_a_fault_every_case_passes(place: Place) -> None:
    report = await place.run(no_fault, Profile(**LIMITS), frozenset({"media.*", "feature.*", "rules.media-*"}))
    assert {one.result for one in report.cases} == {Result.PASS}
    assert {name for name, one in report.capabilities.items() if one.present} == NEEDED | KINDS
    assert len(report.cases) > 70


@pytest.mark.parametrize("mutant", media.MUTANTS, ids=[mutant.name for mutant in media.MUTANTS])
async def test_the_fault_is_found(place: Place, mutant: Mutant) -> None:
    check(mutant, await place.result_of(mutant))


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_a_model_without_a_kind_is_told_and_not_blamed(place: Place, kind: str) -> None:
    """It refuses such parts as C19 has it: nothing fails, and what needs the kind is unsupported."""
    fault = refusing(lambda fields: f"{kind}_url" in str(fields) or f"input_{kind}" in str(fields), PLACES)
    report = await place.run(fault, Profile(**LIMITS), frozenset({"media.*", "feature.*"}))
    assert not report.capabilities[kind].present
    assert report.exit_code is Exit.CONFORMS
    results = {one.case.id: one for one in report.cases}
    for name, one in results.items():
        expected = Result.UNSUPPORTED if kind in one.case.needs else Result.PASS
        assert one.result is expected, (name, one.message)
    assert results[f"feature.{kind}"].result is Result.PASS


PLACES = " and ".join(f"messages[{i}].content[{j}]" for i in range(3) for j in range(5))

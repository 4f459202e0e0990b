"""Deliberately wrong servers of the ``openai`` dialect, each found by the case that names its fault."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from conformance.bodies import Change
from conformance.capabilities import capability_names
from conformance.case import CHAT, Kind
from conformance.catalogue import all_cases
from conformance.profile import Profile
from conformance.results import Result
from conformance.script import script
from mindserve.chat.tokenizer import load_tokenizer
from mindserve.config.settings import Dialect
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from tests import tiny_models
from tests.conformance.mutants import openai_wire
from tests.conformance.mutants.faults import Mutant
from tests.conformance.mutants.place import Place, place_before
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question, no_fault
from tests.conformance.test_mutants import COMPUTING, LIMITS, NEEDED, check
from tests.serving import MODEL, Model, running, scripted_model

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    model = scripted_model(tmp_path_factory.mktemp("model"), script())
    async with place_before(model, NEEDED, Dialect.OPENAI) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def computing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A tiny model with random weights in a process of its own, whose first word is known."""
    folder = tiny_models.build("llama", tmp_path_factory.mktemp("tiny"))

    def model() -> Model:
        options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
        return Model(NativeEngine(options), load_tokenizer(folder))

    async with running(model()) as live, httpx2.AsyncClient(base_url=live.url, timeout=30) as client:
        answer = (await client.post(CHAT, json=Change("logprobs").body(MODEL))).json()
    tokens = [entry["token"] for entry in answer["choices"][0]["logprobs"]["content"]]
    said = next(
        token for token in tokens if token and token.isascii()
    )  # others are broken characters, which several tokens are
    tokenizer = tiny_models.tokenizer()
    likely_token = next(one for one in range(len(tokenizer)) if tokenizer.decode([one]) == said)
    able = COMPUTING | {"likely-token"}
    async with place_before(model(), able, Dialect.OPENAI, likely_token) as made:
        yield made


async def test_without_a_fault_every_case_passes(place: Place) -> None:
    report = await place.run(no_fault, Profile(dialect="openai", **LIMITS))
    wrong = [one for one in report.cases if one.result not in (Result.PASS, Result.UNSUPPORTED)]
    assert [(one.case.id, one.result, one.message) for one in wrong] == []
    assert {name for name, capability in report.capabilities.items() if capability.present} == NEEDED


@pytest.mark.parametrize("case", sorted({mutant.case for mutant in openai_wire.COMPUTED}))
async def test_an_engine_that_computes_passes_without_a_fault(computing: Place, case: str) -> None:
    result = await computing.result_of(Mutant("none", no_fault, case, ""))
    assert result.result is Result.PASS, result.message


@pytest.mark.parametrize("mutant", openai_wire.MUTANTS, ids=[mutant.name for mutant in openai_wire.MUTANTS])
async def test_the_fault_is_found(place: Place, mutant: Mutant) -> None:
    check(mutant, await place.result_of(mutant))


@pytest.mark.parametrize("mutant", openai_wire.COMPUTED, ids=[mutant.name for mutant in openai_wire.COMPUTED])
async def test_the_fault_of_an_engine_that_computes_is_found(computing: Place, mutant: Mutant) -> None:
    check(mutant, await computing.result_of(mutant))


async def test_a_server_of_the_other_dialect_does_not_pass(place: Place) -> None:
    """What it answers to a request that names no dialect is MindIE's."""

    async def vllm(question: Question, forward: Forward) -> Answer:
        return await forward(Question(question.method, question.path, [*question.headers, VLLM], question.body))

    profile = Profile(dialect="openai", capabilities=dict.fromkeys(capability_names(), False))
    only = frozenset({"whole.plain", "stream.plain", "request.temperature.below-minimum", "request.unknown-model"})
    report = await place.run(vllm, profile, only)
    assert {one.case.id: one.result for one in report.cases} == dict.fromkeys(only, Result.FAIL)


VLLM = (openai_wire.HEADER, b"vllm")


async def _refuses_everything(question: Question, forward: Forward) -> Answer:
    return openai_wire.refusal("nothing is taken here")


async def _says_nothing(question: Question, forward: Forward) -> Answer:
    return Answer(200, [("content-type", "application/json"), ("content-length", "2")], b"{}")


@pytest.mark.parametrize(
    ("fault", "kind"), [(_says_nothing, Kind.REFUSED), (_refuses_everything, Kind.ANSWER)], ids=["empty", "refusals"]
)
async def test_no_case_passes_whatever_is_answered(place: Place, fault: Fault, kind: Kind) -> None:
    able = dict.fromkeys(capability_names(), True)
    profile = Profile(dialect="openai", **LIMITS, likely_token=1, capabilities=able, adapter="tuned")
    only = frozenset(case.id for case in all_cases("openai") if case.expect.kind is kind and case.call.path == CHAT)
    report = await place.run(fault, profile, only)
    assert len(report.cases) > 100
    assert [one.case.id for one in report.cases if one.result not in (Result.FAIL, Result.WARN)] == []

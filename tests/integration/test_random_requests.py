"""Random requests that use every parameter at once, drawn from the contract: each is answered as the contract says.

The server, its sockets and the engine's process are the real ones; the model is tiny, with two LoRA adapters.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import jsonschema_rs
import pytest
import pytest_asyncio
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mindserve.chat.tokenizer import load_tokenizer
from mindserve.config.settings import ServeSettings
from mindserve_engine.options import EngineOptions
from tests import random_requests, tiny_adapters, tiny_models
from tests.answer_checks import Told, Vocabulary, Wish, check_completion, check_refusal, check_stream, first_match
from tests.qwen import ToldEngine
from tests.random_requests import RequestDrawing, Verdict
from tests.serving import MODEL, Live, Model, eventually, is_idle, running
from tests.spec.test_rules import BEYOND_SCHEMA

CHAT: Final = "/v1/chat/completions"
ADAPTERS: Final = ("red", "blue")
NAMES: Final = (MODEL, *ADAPTERS)
MAX_ITER_TIMES: Final = 16
MAX_CONTEXT: Final = 512
NUM_TAKEN: Final = 260
NUM_REFUSED: Final = 40
NUM_PAIRS: Final = 60


def _vocabulary() -> Vocabulary:
    tokenizer = tiny_models.tokenizer()
    byte_of = {character: bytes([byte]) for byte, character in bytes_to_unicode().items()}
    spelled = tokenizer.get_vocab().items()
    token_bytes = {number: byte_of.get(token, token.encode()) for token, number in spelled}
    return Vocabulary(token_bytes, frozenset(tokenizer.all_special_tokens) | {"<|im_start|>"}, str(tokenizer.eos_token))


VOCABULARY: Final = _vocabulary()

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one engine process for all: starting one takes seconds


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    """The view of the document's dialect."""
    view = Path(__file__).parents[2] / "src" / "mindserve" / "api" / "_generated" / "openapi.vllm.json"
    loaded: dict[str, Any] = json.loads(view.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def validators(contract: dict[str, Any]) -> dict[str, jsonschema_rs.Draft202012Validator]:
    components = contract["components"]
    names = ("ChatCompletionRequest", "ChatCompletion", "ChatCompletionChunk", "ErrorBody")
    return {
        name: jsonschema_rs.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})
        for name in names
    }


@pytest.fixture(scope="module")
def verdict(validators: dict[str, jsonschema_rs.Draft202012Validator]) -> Verdict:
    return Verdict(validators["ChatCompletionRequest"], NAMES, random_requests.LACKING)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    folder = tiny_models.build("llama", tmp_path_factory.mktemp("model"))
    adapters = {name: tmp_path_factory.mktemp(name) for name in ADAPTERS}
    for seed, adapter in enumerate(adapters.values()):
        tiny_adapters.write(folder, adapter, seed=seed, r=4 + seed)
    options = EngineOptions(
        model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16, adapters=adapters
    )
    settings = ServeSettings(model_name=MODEL, lora_names=ADAPTERS, max_iter_times=MAX_ITER_TIMES)
    tokenizer = load_tokenizer(folder)
    async with running(Model(ToldEngine(options, tokenizer), tokenizer), settings) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=live.url, timeout=120, limits=limits) as opened:
        yield opened


class Checks:
    """Sends requests, and holds each answer against the contract."""

    def __init__(self, client: httpx2.AsyncClient, contract: dict[str, Any], validators: dict[str, Any]) -> None:
        self._client = client
        self._validators = validators
        self._schemas = contract["components"]["schemas"]
        self.ids: list[str] = []

    async def taken(self, requests: list[dict[str, Any]]) -> list[list[Told]]:
        """What is said of the sequences of each of ``requests``, sent all at once."""
        answers = await asyncio.gather(*(self._client.post(CHAT, json=request) for request in requests))
        return [self._told(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _told(self, request: dict[str, Any], answer: httpx2.Response) -> list[Told]:
        wish = Wish(request, VOCABULARY, MAX_ITER_TIMES, MAX_CONTEXT)
        try:
            assert answer.status_code == 200
            kind = answer.headers["content-type"]
            assert kind == ("text/event-stream" if wish.is_stream else "application/json")
            if wish.is_stream:
                assert answer.headers["cache-control"] == "no-cache"
                assert answer.headers["x-accel-buffering"] == "no"
            check = check_stream if wish.is_stream else check_completion
            identifier, told = check(wish, answer.text, self._validators, self._schemas)
        except (AssertionError, jsonschema_rs.ValidationError) as error:
            error.add_note(f"request: {request!r}\nanswer: {answer.status_code} {answer.text}")
            raise
        self.ids.append(identifier)
        return told

    async def refused(self, requests: list[dict[str, Any]]) -> None:
        answers = await asyncio.gather(*(self._client.post(CHAT, json=request) for request in requests))
        for request, answer in zip(requests, answers, strict=True):
            assert answer.status_code == 422, (request, answer.text)
            check_refusal(request, answer.text, self._validators, self._schemas)


@pytest.fixture(scope="module")
def checks(client: httpx2.AsyncClient, contract: dict[str, Any], validators: dict[str, Any]) -> Checks:
    return Checks(client, contract, validators)


def _drawn(contract: dict[str, Any], seed: int, accept: Callable[[dict[str, Any]], bool], num: int) -> list[Any]:
    drawing = RequestDrawing(contract, NAMES, seed)
    return list(itertools.islice(filter(accept, drawing.requests()), num))


def _is_reproducible(request: dict[str, Any]) -> bool:
    return request.get("seed") is not None or request.get("temperature") == 0 or request.get("use_beam_search") is True


async def test_every_answer_keeps_the_contract(
    live: Live, checks: Checks, contract: dict[str, Any], verdict: Verdict
) -> None:
    requests = _drawn(contract, 1, verdict.is_taken, NUM_TAKEN)
    answers = await checks.taken(requests)
    assert len(set(checks.ids)) == len(checks.ids)
    ends = Counter(one.finish for told in answers for one in told)
    assert min(ends["stop"], ends["length"]) > 30, ends
    await eventually(lambda: is_idle(live))


async def test_every_field_is_drawn(contract: dict[str, Any], verdict: Verdict) -> None:
    """In requests that are taken, with a value; only what the server lacks is left out."""
    requests = _drawn(contract, 1, verdict.is_taken, NUM_TAKEN)
    fields = contract["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    given = Counter(name for request in requests for name, value in request.items() if value is not None)
    assert {name: given[name] for name in fields if given[name] < 5} == {}
    assert {name for name in fields if not any(name in one and one[name] is None for one in requests)} == {
        "model",
        "messages",
    }
    assert set(random_requests.BEYOND_SCHEMA) | random_requests.NOT_DRAWN == BEYOND_SCHEMA


async def test_what_the_rules_forbid_is_refused(
    live: Live, checks: Checks, contract: dict[str, Any], verdict: Verdict
) -> None:
    await checks.refused(_drawn(contract, 2, lambda request: not verdict.is_taken(request), NUM_REFUSED))
    await eventually(lambda: is_idle(live))


async def test_a_stream_and_a_body_say_the_same(checks: Checks, contract: dict[str, Any], verdict: Verdict) -> None:
    def is_both(request: dict[str, Any]) -> bool:
        both = all(verdict.is_taken({**request, "stream": stream}) for stream in (True, False))
        return both and _is_reproducible(request)

    requests = _drawn(contract, 3, is_both, NUM_PAIRS)
    streamed, whole = await asyncio.gather(
        *(checks.taken([{**request, "stream": stream} for request in requests]) for stream in (True, False))
    )
    for request, one, other in zip(requests, streamed, whole, strict=True):
        assert _summary(one) == _summary(other), f"{request!r}"


def _summary(told: list[Told]) -> Counter[Any]:
    """The sequences without their order: that of a whole answer is by likelihood."""
    return Counter((one.text, one.finish, tuple(entry["token"] for entry in one.entries)) for one in told)


async def test_a_stop_string_cuts_the_text_that_comes_without_it(
    checks: Checks, contract: dict[str, Any], verdict: Verdict
) -> None:
    """The same requests, once without stop strings and once with pieces of what was then said."""

    def is_fit(request: dict[str, Any]) -> bool:
        plain = {**request, "stop": None}
        return _is_reproducible(request) and verdict.is_taken(plain) and verdict.is_taken({**request, "stop": "x"})

    requests = [{**one, "stop": None} for one in _drawn(contract, 4, is_fit, NUM_PAIRS)]
    plain = await checks.taken(requests)
    stops = [_pieces(told[0].text) for told in plain]
    stopped = await checks.taken([{**one, "stop": stop} for one, stop in zip(requests, stops, strict=True)])
    num_cut = 0
    for request, stop, before, after in zip(requests, stops, plain, stopped, strict=True):
        wanted = Counter(_cut(request, stop, one.text) for one in before)
        assert Counter(one.text for one in after) == wanted, f"{request!r} {stop!r}"
        num_cut += wanted != Counter(one.text for one in before)
    assert num_cut > NUM_PAIRS / 2


def _pieces(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[middle : middle + 2], text[middle + 1 : middle + 5], text[-1:]) if piece] or ["x"]


def _cut(request: dict[str, Any], stops: list[str], text: str) -> str:
    match = first_match(stops, text)
    if match is None:
        return text
    return text[: match[1] if request.get("include_stop_str_in_output") else match[0]]

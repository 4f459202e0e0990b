"""Beam search on a fake model against a search written down plainly; all or nothing in places, blocks and failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_runner import beam_candidates, next_state
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Bench, ask

from mindserve_engine.beam import BeamSearch, Candidate
from mindserve_engine.native.batch import Sampled
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.types import FinishReason, GenerationRequest

PROMPT = [1, 2, 3]


def plain_search(request: GenerationRequest, eos: tuple[int, ...] = ()) -> list[tuple[list[int], float]]:
    """Tokens and normalised scores of the request's hypotheses: everything is recomputed and sorted in every step."""
    width = request.beam_width
    ending = set() if request.ignore_eos else set(eos)
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for length in range(1, request.max_tokens + 1):
        grown = []
        for tokens, score in beams:
            states: list[int] = []
            for token_id in request.prompt_token_ids + tokens:
                states.append(next_state(states, token_id))
            num_candidates = max(2, 1 + len(ending)) * width
            grown += [([*tokens, token], score + more) for token, more in beam_candidates(states[-1], num_candidates)]
        grown = sorted(grown, key=lambda beam: -beam[1])[: max(2, 1 + len(ending)) * width]
        at_end = length == request.max_tokens
        finished += [(tokens, score / length) for tokens, score in grown[:width] if at_end or tokens[-1] in ending]
        finished = sorted(finished, key=lambda beam: -beam[1])[:width]
        beams = [beam for beam in grown if beam[0][-1] not in ending][:width]
        if len(finished) == width and beams[0][1] / length <= finished[-1][1]:
            break
    return finished[: request.num_sequences]


def found(bench: Bench, request_id: str) -> list[tuple[list[int], float]]:
    return [(event.token_ids, pytest.approx(event.beam_score)) for event in bench.events[request_id]]


def search(request_id: str = "beam", *, width: int = 3, **fields: object) -> GenerationRequest:
    return ask(request_id, fields.pop("prompt", PROMPT), **{"max_tokens": 8, "beam_width": width, **fields})


@settings(max_examples=80, deadline=None)
@given(
    width=st.integers(1, 6),
    max_tokens=st.integers(1, 9),
    eos=st.lists(st.integers(0, 899), max_size=400, unique=True),
    block_size=st.sampled_from([1, 2, 3, 4]),
    max_step_tokens=st.integers(6, 30),
    prompt=st.lists(st.integers(0, 5), min_size=1, max_size=9),
    data=st.data(),
)
def test_equals_a_plain_search(
    width: int,
    max_tokens: int,
    eos: list[int],
    block_size: int,
    max_step_tokens: int,
    prompt: list[int],
    data: st.DataObject,
) -> None:
    ends = tuple(eos)
    bench = Bench(num_blocks=256, block_size=block_size, eos=ends, max_step_tokens=max_step_tokens, max_batch_size=6)
    num_sequences = data.draw(st.integers(1, width))
    request = search(width=width, max_tokens=max_tokens, prompt=prompt, num_sequences=num_sequences)
    bench.add(request)
    bench.add(ask("beside", [7, 7], 4, ignore_eos=True))
    bench.run()
    assert [(event.token_ids, event.beam_score) for event in bench.events["beam"]] == [
        (tokens, pytest.approx(score)) for tokens, score in plain_search(request, ends)
    ]
    for event in bench.events["beam"]:
        assert len(event.timings) == len(event.token_ids)
        is_eos = event.token_ids[-1] in ends
        assert event.finish_reason is (FinishReason.EOS if is_eos else FinishReason.LENGTH)
    assert bench.loop.stats().num_free_blocks == 256


def test_blocks_are_shared_between_beams() -> None:
    bench = Bench(num_blocks=64, block_size=4)
    bench.add(search(width=5, prompt=list(range(40)), max_tokens=10))
    while bench.loop.has_work:
        bench.step()
        # ten blocks of the prompt once, and at most three of each beam's own
        assert 64 - bench.loop.stats().num_free_blocks <= 10 + 5 * 3


def test_search_that_is_preempted_begins_anew_with_the_same_result() -> None:
    bench = Bench(num_blocks=14, block_size=2)
    old = ask("old", [5], 20)
    request = search(width=3, max_tokens=10)
    bench.add(old)
    bench.add(request)
    bench.run()
    assert bench.loop.stats().num_preemptions_total > 0
    assert found(bench, "beam") == plain_search(request)
    assert len(bench.events["beam"][0].timings) == len(bench.events["beam"][0].token_ids)


def test_search_that_outgrows_the_pool_fails_and_others_go_on() -> None:
    bench = Bench(num_blocks=8, block_size=1)
    bench.add(search(width=4, max_tokens=5))
    bench.add(ask("after", [9], 3))
    bench.run()
    assert bench.failures == {"beam": "its 4 beams outgrew the KV memory of 8 tokens"}
    assert len(bench.output("after")) == 3
    assert bench.loop.stats().num_free_blocks == 8


def test_searches_and_others_share_steps() -> None:
    bench = Bench(max_batch_size=8)
    requests = [search("one", width=3), search("two", width=4, prompt=[4, 4], num_sequences=2)]
    for request in requests:
        bench.add(request)
    bench.add(ask("plain", [5], 8))
    bench.run()
    assert max(len(batch.query_ends) for batch in bench.runner.batches) == 8
    for request in requests:
        assert found(bench, request.request_id) == plain_search(request)


def test_search_waits_until_there_is_a_place_for_every_beam() -> None:
    bench = Bench(max_batch_size=4)
    bench.add(ask("first", [5], 3))
    bench.add(search(width=4))
    bench.add(ask("last", [6], 3))
    bench.run()
    sizes = [len(batch.query_ends) for batch in bench.runner.batches]
    assert sizes[:4] == [1, 1, 1, 1]  # the first request alone, then the search's prompt
    assert max(sizes) == 4
    assert found(bench, "beam") == plain_search(search(width=4))


def test_abort_and_failure_take_all_beams() -> None:
    bench = Bench()
    bench.add(search("gone"))
    bench.add(search("broken", num_sequences=2))
    for _ in range(3):
        bench.step()
    assert bench.loop.abort("gone")
    bench.loop.check()
    beam = bench.loop._scheduler.running[-1]
    bench.runner.failures[beam.sequence_id] = "NaN"
    bench.run()
    assert [(event.index, event.failure) for event in bench.events["broken"]] == [(0, "NaN"), (1, "NaN")]
    assert bench.events["gone"] == []
    assert bench.loop.stats().num_free_blocks == 64


class Counted(tuple[Candidate, ...]):
    """How many candidates were looked at."""

    num_taken = 0

    def __iter__(self) -> Iterator[Candidate]:
        for candidate in super().__iter__():
            Counted.num_taken += 1
            yield candidate


def test_a_wide_search_looks_at_few_more_continuations_than_it_wants() -> None:
    width = 64
    request = search(width=width)
    found = BeamSearch(request, eos_token_ids=(), max_tokens=8)
    beams = [Sequence(number, 0, request, 0.0, search=found, beam_score=-number / 7) for number in range(width)]
    rows = {beam: [Candidate(rank, -rank / 5, -rank / 5) for rank in range(found.num_candidates)] for beam in beams}
    everything = [(beam.beam_score + one.score, beam, one.token_id) for beam, row in rows.items() for one in row]
    everything.sort(key=lambda one: -one[0])
    Counted.num_taken = 0
    living = found.advance({beam: Sampled(0, candidates=Counted(row)) for beam, row in rows.items()})
    assert [(one.score, one.parent, one.token_id) for one in living] == everything[:width]
    assert Counted.num_taken <= found.num_candidates + width

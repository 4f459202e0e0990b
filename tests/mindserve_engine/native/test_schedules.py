"""Random traffic on tiny pools: nothing is lost, starved or freed twice, and every output equals the reference."""

from __future__ import annotations

from fake_runner import VOCAB_SIZE, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from loops import Bench, ask

from mindserve_engine.types import FinishReason, GenerationRequest

# few different tokens, so that prompts share prefixes
PROMPT_TOKENS = st.integers(0, 1)
SIZES = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(3, 24),
        "block_size": st.sampled_from([1, 2, 3, 4]),
        "max_batch_size": st.integers(1, 6),
        "max_step_tokens": st.one_of(st.integers(1, 12), st.just(99)),
        "prefix_cache": st.booleans(),
        "mixed_step_ms": st.sampled_from([0.0, 20.0, 250.0]),
    }
)


def check_output(bench: Bench, request: GenerationRequest, *, finished: bool) -> None:
    """What was generated is what the model alone would have generated, as far as it went."""
    context = bench.runner.num_blocks * bench.runner.block_size
    length = min(request.max_tokens, context - len(request.prompt_token_ids))
    for index in range(request.num_sequences):
        events = bench.of_sequence(request.request_id, index)
        output = bench.output(request.request_id, index)
        assert output == reference(request.prompt_token_ids, length, index)[: len(output)]
        assert [event.finish_reason for event in events[:-1]] == [None] * len(events[:-1])
        if finished:
            assert len(output) == length
            assert events[-1].finish_reason is FinishReason.LENGTH


class Traffic(RuleBasedStateMachine):
    """Arrivals, steps and aborts in any order."""

    @initialize(sizes=SIZES)
    def build(self, sizes: dict[str, int]) -> None:
        self.bench = Bench(**sizes)
        self.capacity = sizes["num_blocks"] * sizes["block_size"]
        self.live: dict[str, GenerationRequest] = {}
        self.prompts: list[list[int]] = []
        self.num_requests = 0

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        length = data.draw(st.integers(1, self.capacity - 1))
        start = data.draw(st.sampled_from([[], *self.prompts]))[:length]  # often what somebody has asked before
        rest = length - len(start)
        prompt = start + data.draw(st.lists(PROMPT_TOKENS, min_size=rest, max_size=rest))
        self.prompts.append(prompt)
        num_sequences = data.draw(st.sampled_from([1, 1, 2, 7]))
        request = ask(str(self.num_requests), prompt, data.draw(st.integers(1, 20)), num_sequences=num_sequences)
        self.num_requests += 1
        self.live[request.request_id] = request
        self.bench.add(request)

    @precondition(lambda self: self.live)
    @rule(num_steps=st.integers(1, 5))
    def run_steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.bench.loop.has_work:
                self.bench.step()
                for request_id in list(self.live):
                    events = self.bench.events[request_id]
                    num_ended = sum(event.finish_reason is not None for event in events)
                    if num_ended == self.live[request_id].num_sequences:
                        check_output(self.bench, self.live.pop(request_id), finished=True)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        assert self.bench.loop.abort(request_id)
        check_output(self.bench, self.live.pop(request_id), finished=False)
        self.bench.loop.check()

    @invariant()
    def every_live_request_is_known(self) -> None:
        stats = self.bench.loop.stats()
        assert stats.num_running + stats.num_waiting == len(self.live)

    def teardown(self) -> None:
        if hasattr(self, "live"):
            self.bench.run()
            for request in self.live.values():
                check_output(self.bench, request, finished=True)
            assert self.bench.loop.stats().num_free_blocks == self.bench.runner.num_blocks
            assert self.bench.runner.remembered == set()


Traffic.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestTraffic = Traffic.TestCase


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, prompts=st.lists(st.lists(PROMPT_TOKENS, min_size=1, max_size=10), min_size=2, max_size=8))
def test_first_come_is_first_finished_among_equals(sizes: dict[str, int], prompts: list[list[int]]) -> None:
    """Requests for the same number of tokens never overtake each other by more than a batch allows."""
    bench = Bench(**sizes)
    capacity = sizes["num_blocks"] * sizes["block_size"]
    length = min(len(min(prompts, key=len)), capacity - 1)
    for number, prompt in enumerate(prompts):
        bench.add(ask(str(number), prompt[:length], 3))
    firsts = []
    while bench.loop.has_work:
        firsts += [event.request_id for event in bench.step() if len(bench.events[event.request_id]) == 1]
    assert firsts == [str(number) for number in range(len(prompts))]


@settings(max_examples=40, deadline=None)
@given(
    budgets=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    prompt=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=40),
)
def test_chunking_never_changes_the_output(budgets: list[int], prompt: list[int]) -> None:
    outputs = []
    for budget in budgets:
        bench = Bench(max_step_tokens=budget)
        bench.add(ask("r", prompt, 5))
        bench.run()
        outputs.append(bench.output("r"))
    assert outputs == [reference(prompt, 5)] * len(budgets)

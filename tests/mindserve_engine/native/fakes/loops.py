"""An engine loop over the fake runner, and requests for it."""

from __future__ import annotations

from pathlib import Path

from fake_runner import VOCAB_SIZE, FakeRunner

from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.scheduler import Schedule
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, GenerationRequest, SequenceEvent


def fake_info(num_blocks: int, block_size: int, eos: tuple[int, ...] = ()) -> EngineInfo:
    max_context = num_blocks * block_size
    return EngineInfo(
        model_type="fake",
        vocab_size=VOCAB_SIZE,
        max_context=max_context,
        max_prompt_tokens=max_context - 1,
        eos_token_ids=eos,
        block_size=block_size,
        num_blocks=num_blocks,
    )


class FakeClock:
    """Advances by a millisecond each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Bench:
    """A loop whose books and promises are checked after every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        eos: tuple[int, ...] = (),
        runner_class: type[FakeRunner] = FakeRunner,
        **options: object,
    ) -> None:
        self.runner = runner_class(num_blocks, block_size)
        self.clock = FakeClock()
        self.options = EngineOptions(model_path=Path("none"), **options)
        self.loop = EngineLoop(self.runner, fake_info(num_blocks, block_size, eos), self.options, self.clock)
        self.events: dict[str, list[SequenceEvent]] = {}
        self._scheduler = self.loop._scheduler
        self._decide, self._scheduler.schedule = self._scheduler.schedule, self._schedule

    def add(self, request: GenerationRequest) -> None:
        self.loop.add(request, self.clock.now)
        self.events[request.request_id] = []

    def step(self) -> list[SequenceEvent]:
        events = self.loop.step()
        for event in events:
            self.events[event.request_id].append(event)
        self.loop.check()
        running = {sequence.sequence_id for sequence in self._scheduler.running}
        assert self.runner.remembered <= running, "the runner keeps what it should have forgotten"
        return events

    def _schedule(self) -> Schedule:
        """What the scheduler decided, when it keeps what it promises: everybody who runs gets on in every step."""
        work = self._decide()
        assert list(work) == self._scheduler.running
        assert len(work) <= self.options.max_batch_size
        assert min(work.values(), default=1) >= 1
        assert sum(work.values()) <= self.options.max_step_tokens
        return work

    def run(self, max_steps: int = 10_000) -> None:
        for _ in range(max_steps):
            if not self.loop.has_work:
                return
            self.step()
        raise AssertionError("the requests do not come to their end")

    @property
    def failures(self) -> dict[str, str]:
        """Why requests failed, by their ids."""
        return {name: events[-1].failure for name, events in self.events.items() if events and events[-1].failure}

    def output(self, request_id: str, index: int = 0) -> list[int]:
        return [token_id for event in self.of_sequence(request_id, index) for token_id in event.token_ids]

    def of_sequence(self, request_id: str, index: int = 0) -> list[SequenceEvent]:
        return [event for event in self.events[request_id] if event.index == index]


def ask(request_id: str, prompt: list[int], max_tokens: int = 8, **fields: object) -> GenerationRequest:
    return GenerationRequest(request_id=request_id, prompt_token_ids=prompt, max_tokens=max_tokens, **fields)

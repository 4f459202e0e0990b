"""The client side of one request with several sequences: what its consumer is told, what its process is asked."""

import pytest

from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.types import FinishReason, GenerationRequest, SequenceEvent

NAME = "r"


def event(index: int, token_id: int, finish_reason: FinishReason | None = None) -> SequenceEvent:
    return SequenceEvent(NAME, index, [token_id], [], finish_reason)


def ask(num_sequences: int) -> GenerationRequest:
    return GenerationRequest(request_id=NAME, prompt_token_ids=[1], max_tokens=9, num_sequences=num_sequences)


class Aborts(list[tuple[str, int | None]]):
    def __call__(self, request_id: str, index: int | None) -> None:
        self.append((request_id, index))


@pytest.fixture
def aborts() -> Aborts:
    return Aborts()


@pytest.fixture
def generation(aborts: Aborts) -> QueuedGeneration:
    return QueuedGeneration(ask(2), aborts)


async def test_an_end_that_waits_outlives_the_stop_of_the_last_open_sequence(
    generation: QueuedGeneration, aborts: Aborts
) -> None:
    end = event(1, 8, FinishReason.EOS)
    for one in (event(0, 7), end, event(0, 9)):
        generation.push(one)
    assert (await anext(generation)).token_ids == [7]
    generation.stop(0)  # as for a stop string, of which the process knows nothing
    assert [one async for one in generation] == [end]
    assert aborts == [(NAME, None)]  # the whole request: nothing is left of it for the process to do


async def test_a_stopped_sequence_leaves_the_others_to_go_on(generation: QueuedGeneration, aborts: Aborts) -> None:
    end = event(1, 8, FinishReason.LENGTH)
    generation.push(event(0, 7))
    generation.stop(0)
    generation.stop(0)
    assert not generation.push(event(0, 9))
    assert generation.push(end)
    assert [one async for one in generation] == [end]
    assert aborts == [(NAME, 0)]

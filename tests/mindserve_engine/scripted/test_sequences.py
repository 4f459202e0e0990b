"""Several sequences, beams and log-probabilities from a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindserve_engine.interface import Engine, RequestInvalid
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.types import FinishReason, GenerationRequest, SequenceEvent

SCRIPT = """
- default: true
  pieces: [a, b, c]
  logprobs: [-1, -2, -4]
  others:
    - {pieces: [x, y], finish: length, logprobs: -0.5, batch_size: [2, 3]}
"""


async def started(tmp_path: Path) -> Engine:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    engine = create_engine("scripted", EngineOptions(model_path=tmp_path / "script.yaml", max_batch_size=4))
    await engine.start()
    return engine


def ask(**fields: object) -> GenerationRequest:
    return GenerationRequest(**{"request_id": "r", "prompt_token_ids": [104], "max_tokens": 9, **fields})


async def collect(tmp_path: Path, **fields: object) -> dict[int, list[SequenceEvent]]:
    found: dict[int, list[SequenceEvent]] = {}
    async for event in await (await started(tmp_path)).admit(ask(**fields)):
        found.setdefault(event.index, []).append(event)
    return found


async def test_sequences_take_turns_and_start_over_with_the_voices(tmp_path: Path) -> None:
    order = [event.index async for event in await (await started(tmp_path)).admit(ask(num_sequences=3))]
    assert order == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2]
    found = await collect(tmp_path, num_sequences=3)
    assert [len(found[index]) for index in range(3)] == [4, 2, 4]
    assert [event.token_ids for event in found[0]] == [event.token_ids for event in found[2]]
    assert [event.timings[0].batch_size for event in found[1]] == [2, 3]
    assert [found[index][-1].finish_reason for index in (0, 1)] == [FinishReason.EOS, FinishReason.LENGTH]


async def test_logprobs_are_the_script_s(tmp_path: Path) -> None:
    found = await collect(tmp_path, num_logprobs=3)
    entries = [entry for event in found[0] for entry in event.logprobs]
    assert [entry.logprob for entry in entries] == [-1, -2, -4, -4]
    for event, entry in zip(found[0], entries, strict=True):
        assert entry.top_token_ids == [event.token_ids[0], 0, 1]
        assert entry.top_logprobs == [entry.logprob - rank for rank in range(3)]
    assert found[0][-1].beam_score is None


async def test_beams_come_at_the_end(tmp_path: Path) -> None:
    found = await collect(tmp_path, num_sequences=2, beam_width=3)
    assert [len(events) for events in found.values()] == [1, 1]
    assert [len(found[index][0].token_ids) for index in range(2)] == [4, 2]
    assert [found[index][0].beam_score for index in range(2)] == [-11 / 4, -0.5]
    assert all(len(events[0].timings) == len(events[0].token_ids) for events in found.values())


async def test_one_sequence_is_given_up(tmp_path: Path) -> None:
    engine = await started(tmp_path)
    generation = await engine.admit(ask(num_sequences=2))
    seen = []
    async for event in generation:
        seen.append(event.index)
        generation.stop(0)
    assert seen == [0, 1, 1]
    assert engine.stats().num_running == 0
    alone = await engine.admit(ask(request_id="alone"))
    alone.stop(0)
    assert [event async for event in alone] == []
    assert engine.stats().num_running == 0


async def test_more_beams_than_places_are_refused(tmp_path: Path) -> None:
    engine = await started(tmp_path)
    with pytest.raises(RequestInvalid, match="beam_width: is 5, too many beams: a step runs at most 4 sequences"):
        await engine.admit(ask(beam_width=5))
    with pytest.raises(RequestInvalid, match="adapter: is 'x', must be one of: none"):
        await engine.admit(ask(adapter="x"))

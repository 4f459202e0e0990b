"""Runs a step's schedule on the runner; when that raises, finds out which sequences are to blame."""

from __future__ import annotations

import logging
from typing import Final

from mindserve_engine.native.batch import Runner, Sampled
from mindserve_engine.native.flatten import flatten
from mindserve_engine.native.scheduler import Schedule
from mindserve_engine.native.sequence import Sequence

MAX_FAILED_STEPS: Final = 3
"""So many steps in a row that none of their sequences survived are the engine's fault, not the requests'."""
RAISED: Final = Sampled(0, failure="its computation failed")
"""The result of a sequence that the runner cannot run, told to the client; the log has the details."""

Results = dict[Sequence, list[Sampled]]
"""Of the sequences that get a token or fail, one for each draw; the others of the step were run, but not sampled."""

log = logging.getLogger(__name__)


class LoopBroken(Exception):
    """The loop cannot go on; the process must be replaced."""


class Execution:
    """Steps on one runner. A sequence that makes its step raise fails alone."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._num_failed_steps = 0

    def run(self, schedule: Schedule) -> Results:
        """Raises ``LoopBroken`` when step after step fails altogether."""
        try:
            results = self._attempt(schedule)
        except Exception as error:
            log.exception("a step of %d sequences failed", len(schedule))
            alone = len(schedule) == 1
            results = {sequence: [RAISED] for sequence in schedule} if alone else self._run_each_alone(schedule)
            if all(results.get(sequence) == [RAISED] for sequence in schedule):
                self._note_failure(error)
                return results
        self._num_failed_steps = 0
        return results

    def _note_failure(self, error: Exception) -> None:
        self._num_failed_steps += 1
        if self._num_failed_steps >= MAX_FAILED_STEPS:
            raise LoopBroken(f"{MAX_FAILED_STEPS} steps in a row failed, the last with: {error!r}") from error

    def _run_each_alone(self, schedule: Schedule) -> Results:
        """The step once more, sequence by sequence. Keys and values are written again, to the same slots."""
        results: Results = {}
        for sequence, num_tokens in schedule.items():
            self._runner.forget(sequence.sequence_id)  # the failed step may have left the sampler half way
            try:
                results |= self._attempt({sequence: num_tokens})
            except Exception as error:
                log.error("request %s fails by itself: %r", sequence.request.request_id, error)
                results[sequence] = [RAISED]
        return results

    def _attempt(self, schedule: Schedule) -> Results:
        batch = flatten(schedule, self._runner.block_size)
        sampled = self._runner.run(batch)
        if len(sampled) != len(batch.samples):
            raise RuntimeError(f"the runner gave {len(sampled)} results for {len(batch.samples)} samples")
        sequences = list(schedule)
        results: Results = {}
        for sample, result in zip(batch.samples, sampled, strict=True):
            results.setdefault(sequences[sample.row], []).append(result)
        return results

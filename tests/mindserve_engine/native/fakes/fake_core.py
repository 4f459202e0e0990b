"""Runners for engine processes: the fake model, with prompt tokens that make the process misbehave, and bad starts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fake_runner import VOCAB_SIZE, FakeRunner

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo

NUM_BLOCKS, BLOCK_SIZE = 32, 4
NUM_WORDS = 500
DIE, HANG, FAIL, BREAK, SLOW = 901, 902, 903, 904, 905
"""Tokens of a prompt that make its step kill the process, never end or raise; give NaN; make each step take 20 ms."""

Progress = Callable[[str, float], None]


@dataclass
class Loaded:
    runner: FakeRunner
    info: EngineInfo


class TrickyRunner(FakeRunner):
    def run(self, batch: StepBatch) -> list[Sampled]:
        for trick in set(batch.token_ids):
            if trick == DIE:
                os.kill(os.getpid(), signal.SIGKILL)
            elif trick == HANG:
                threading.Event().wait()
            elif trick == FAIL:
                raise RuntimeError("no such page")
        for sample in batch.samples:
            if SLOW in sample.prompt_token_ids:
                time.sleep(0.02)
            if BREAK in sample.prompt_token_ids:
                self.failures[sample.sequence_id] = "the logits are not finite"
        return super().run(batch)


def load_runner(options: EngineOptions, progress: Progress) -> Loaded:
    """Remembers its environment in the model's type, for the test that looks at it."""
    progress("loading weights", 0.5)
    names = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "TORCH_DEVICE_BACKEND_AUTOLOAD")
    max_context = NUM_BLOCKS * BLOCK_SIZE
    info = EngineInfo(
        model_type=" ".join(f"{name}={os.environ.get(name)}" for name in names),
        vocab_size=VOCAB_SIZE,
        max_context=max_context,
        max_prompt_tokens=min(options.max_prompt_tokens or max_context - 1, max_context - 1),
        block_size=BLOCK_SIZE,
        num_blocks=NUM_BLOCKS,
    )
    return Loaded(TrickyRunner(NUM_BLOCKS, BLOCK_SIZE), info)


def refuse_to_load(options: EngineOptions, progress: Progress) -> Loaded:
    raise EngineError(f"{options.model_path}: there is no model")


def fail_to_load(options: EngineOptions, progress: Progress) -> Loaded:
    raise ValueError("first line\nsecond line")


def die_loading(options: EngineOptions, progress: Progress) -> Loaded:
    """Leaves a mark for each attempt in the folder that stands for the model."""
    (options.model_path / str(os.getpid())).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def never_load(options: EngineOptions, progress: Progress) -> Loaded:
    progress("loading for ever", 0.25)
    threading.Event().wait()
    raise AssertionError


def load_once(options: EngineOptions, progress: Progress) -> Loaded:
    """As often as there are instances, then no more."""
    marks = [options.model_path / f"loaded {number}" for number in range(options.num_instances)]
    for mark in marks:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        return load_runner(options, progress)
    raise ValueError("the device is still busy")


def load_every_third_time(options: EngineOptions, progress: Progress) -> Loaded:
    """The first time and then after two failures each."""
    num_earlier = len(list(options.model_path.iterdir()))
    (options.model_path / str(os.getpid())).touch()
    if num_earlier % 3:
        raise ValueError("not now")
    return load_runner(options, progress)


def load_one_instance(options: EngineOptions, progress: Progress) -> Loaded:
    """Whoever comes first is served."""
    try:
        (options.model_path / "loaded").touch(exist_ok=False)
    except FileExistsError:
        return never_load(options, progress)
    return load_runner(options, progress)


def talk_before_loading(options: EngineOptions, progress: Progress) -> Loaded:
    """Leaves a mark in the folder that stands for the model when everything is said."""
    for number in range(NUM_WORDS):
        progress(str(number), 0.0)
    (options.model_path / "said").touch()
    threading.Event().wait()
    raise AssertionError


def say_nonsense(options: EngineOptions, progress: Progress) -> Loaded:
    """Goes on after a word that no parent can read."""
    progress("loading weights", 0.5)
    progress("loading weights", "half of it")
    progress("loading weights", 0.75)
    return never_load(options, progress)


def talk_and_die(options: EngineOptions, progress: Progress) -> Loaded:
    for number in range(NUM_WORDS):
        progress(str(number), 0.0)
    raise EngineError("that was all")

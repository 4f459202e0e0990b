"""A further machine of a model that lies on several: vLLM's processes without a front end. Blocking."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

from mindserve_engine.interface import EngineError
from mindserve_engine.options import EngineOptions
from mindserve_engine.parent import end_with_parent
from mindserve_engine.vllm.guardian import Guardian
from mindserve_engine.vllm.launch import prepare

GRACE_S: Final = 10.0
"""For vLLM's processes to end by themselves."""
_LOOK_EVERY_S: Final = 0.1


def work(options: EngineOptions, is_gone: Callable[[], bool]) -> int:
    """As ``registry.work_for_another``."""
    return in_own_group(lambda: run_headless(options), is_gone)


def run_headless(options: EngineOptions) -> None:
    """Join the machine that serves, and work for it until it ends. Raises ``EngineError`` for what cannot start."""
    args, config, _ = prepare(options, headless=True)
    args.logits_processors = config.model_config.logits_processors
    from vllm.entrypoints.cli import serve

    # What its own command line would have made; it makes the engine's arguments of it again.
    words: dict[str, Any] = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
    serve.run_headless(argparse.Namespace(**words | {"headless": True, "api_server_count": 0}))


def in_own_group(work: Callable[[], None], is_gone: Callable[[], bool]) -> int:
    """``work()``, until ``is_gone()``, in a process group of its own, all of which has ended when this returns the exit
    status.

    vLLM's processes do not answer to signals while they start; SIGTERM and SIGINT here end them in any state. When this
    process is killed, the kernel kills the one that works, and the guardian what that has started. Call it while the
    process has one thread.
    """
    guardian = Guardian()
    parent = os.getpid()
    child = os.fork()
    if not child:
        end_with_parent(parent)
        guardian.let_go()
        _become(work)
    ending: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        ending.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = _wait(child, ending, is_gone)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    guardian.close()
    return 0 if ending else status


def _become(work: Callable[[], None]) -> NoReturn:
    os.setsid()
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0
    except EngineError as error:
        print(error, file=sys.stderr)  # noqa: T201 - to a person
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, ending: list[int], is_gone: Callable[[], bool]) -> int:
    """The exit status of ``child``, which is killed when it outlives a signal for too long, or a second one comes."""
    deadline: float | None = None
    was_left = False
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return 1 if was_left else os.waitstatus_to_exitcode(status)
        if not ending and deadline is None and is_gone():
            print("the machine that serves is gone", file=sys.stderr, flush=True)  # noqa: T201 - to a person
            os.kill(child, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
            was_left = True
        if ending and deadline is None:
            deadline = time.monotonic() + GRACE_S
        if len(ending) > 1 or (deadline is not None and time.monotonic() > deadline):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)

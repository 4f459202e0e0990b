"""A further machine's process, with other work than vLLM's in it."""

import subprocess
import sys

import psutil
import pytest

_NODE = """
import os, signal, subprocess, sys, time
from mindserve_engine.vllm import node

node.GRACE_S = 0.5

def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    below = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"])
    print(os.getpid(), below.pid, flush=True)
    while True:
        signal.pause()

def is_gone():
    return len(sys.argv) > 1

sys.exit(node.in_own_group(WORK, is_gone))
"""


def run(work: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _NODE.replace("WORK", work), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_signal_ends_what_heeds_none() -> None:
    with run("work") as node:
        assert node.stdout is not None
        started = [psutil.Process(int(word)) for word in node.stdout.readline().split()]
        node.terminate()
        assert node.wait(60) == 0
        _, alive = psutil.wait_procs(started, timeout=20)
        assert alive == []


def test_one_that_is_killed_while_its_work_is_about_to_begin_leaves_nothing() -> None:
    with run("work") as node:
        assert node.stdout is not None
        started = [psutil.Process(int(word)) for word in node.stdout.readline().split()]
        node.kill()
        _, alive = psutil.wait_procs(started, timeout=20)
        assert alive == []


def test_without_the_machine_that_serves_it_ends_as_failed() -> None:
    with run("lambda: time.sleep(600)", "gone") as node:
        _, told = node.communicate(timeout=60)
    assert node.returncode == 1
    assert told == "the machine that serves is gone\n"


@pytest.mark.parametrize(("work", "status"), [("lambda: None", 0), ("lambda: sys.exit(3)", 3), ("lambda: 1 / 0", 1)])
def test_the_status_is_that_of_the_work(work: str, status: int) -> None:
    with run(work) as node:
        _, told = node.communicate(timeout=60)
    assert node.returncode == status
    assert ("ZeroDivisionError" in told) == (status == 1)

"""Processes that are started as vLLM's are do not outlive whoever started them."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

# A server whose child is a process that heeds no signal, with a child of its own that its parent does not wait for.
_SERVER = """
import multiprocessing, os, signal, sys, time

def core(words):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()  # what the worker is known by is its look alone
    worker = multiprocessing.get_context("spawn").Process(target=sleep)
    worker.start()
    words.send((os.getpid(), worker.pid))
    sleep()

def sleep():
    while True:
        time.sleep(60)

if __name__ == "__main__":
    from mindserve_engine.vllm.guardian import Guardian
    reading, writing = os.pipe()
    guardian = Guardian(writing)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=core, args=(there,))
    process.start()
    started, seen = set(here.recv()), set()
    with open(reading) as told:
        while not started <= seen:
            seen.update(map(int, told.readline().split()))
    print(*started, flush=True)
    sys.stdin.readline()
    guardian.close()
    os._exit(0)
"""


# A server that is killed with its guardian's first breath, and whose child looks like nothing of vLLM's.
_HASTY = """
import os, signal, subprocess, sys
from mindserve_engine.vllm.guardian import Guardian

guardian = Guardian()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_started_a_moment_ago_is_found_by_its_mark() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    with subprocess.Popen([sys.executable, "-c", _HASTY], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        started = psutil.Process(int(server.stdout.readline()))
        _, alive = psutil.wait_procs([started], timeout=20)
    try:
        assert alive == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_nothing_outlives_the_server(way: str, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(_SERVER)
    server = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    with server, server.stdin, server.stdout:
        started = [psutil.Process(int(word)) for word in server.stdout.readline().split()]
        assert len(started) == 2
        if way == "killed":
            server.kill()
        else:
            server.stdin.write("\n")
            server.stdin.flush()
        _, alive = psutil.wait_procs(started, timeout=20)
        assert alive == []
        server.wait(20)

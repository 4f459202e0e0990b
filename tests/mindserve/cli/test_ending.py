"""The end of a process with threads that do not end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from mindserve.cli.ending import in_daemon_thread

LEAVING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from mindserve.cli.ending import leave
ThreadPoolExecutor().submit(Event().wait)
sys.stdout.write("last words")
leave(7)
"""

CANCELLED = """
import asyncio
from threading import Event
from mindserve.cli.ending import in_daemon_thread

async def main():
    waiting = asyncio.create_task(in_daemon_thread(Event().wait, name="stuck"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

asyncio.run(main())
print("last words")
"""


@pytest.mark.parametrize(("program", "code"), [(LEAVING, 7), (CANCELLED, 0)])
def test_nobody_waits_for_a_stuck_thread(program: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (code, "last words", "")


async def test_results_and_errors_come_back() -> None:
    assert await in_daemon_thread(threading.current_thread, name="a name") is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 / 0, name="fails")


async def test_a_result_that_comes_too_late_is_dropped() -> None:
    go_on, done = threading.Event(), threading.Event()

    def late() -> None:
        go_on.wait(20)
        threading.Thread(target=lambda: (thread.join(20), done.set())).start()

    waiting = asyncio.create_task(in_daemon_thread(late, name="late"))
    await asyncio.sleep(0)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "late")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert await asyncio.to_thread(done.wait, 20)

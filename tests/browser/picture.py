"""`python -m tests.browser.picture FILE`: the playground with an answer in it. Look before you commit."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from mindserve.config.settings import ServeSettings
from tests.browser.chromium import Tab, chromium
from tests.serving import running, scripted_model

ANSWER = (
    "Prefill reads the whole prompt at once; after that each step of the engine makes one more token for every "
    "sequence of its batch. Before a step a token may wait in the queue."
)
COMPLETE = "document.getElementById('status').textContent.startsWith('The answer is complete')"


def replies() -> list[dict[str, Any]]:
    """An answer with figures like those of a small model on a laptop: they repeat, so that the picture does."""
    words = ANSWER.split(" ")
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    steps = [182.0, *(24.0 + number * 7 % 11 for number, _ in enumerate(pieces))]
    waits = [5149, *(40 + number * 37 % 61 for number, _ in enumerate(pieces))]
    return [{"default": True, "pieces": pieces, "step_ms": steps, "queue_wait_us": waits}]


async def ask(tab: Tab) -> None:
    """One whole answer, which has all figures, and a parameter with its explanation."""
    await tab.until("document.getElementById('model').options.length > 0")
    for name, value in (("stream", "false"), ("temperature", "0.7"), ("max_tokens", "64")):
        control = f"document.getElementById('field-{name}')"
        await tab.value(f"{control}.value = '{value}'; {control}.dispatchEvent(new Event('input'))")
    await tab.value("document.getElementById('say').focus()")
    await tab.write("What do prefill and decode mean?")
    await tab.press("Enter")
    await tab.until(COMPLETE)
    await tab.value("document.getElementById('field-temperature').focus()")


async def main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        model = scripted_model(Path(folder), replies())
        settings = ServeSettings(model_name="SmolLM2-135M-Instruct")
        async with running(model, settings) as live, chromium(Path(profile)) as browser, browser.tab() as tab:
            await tab.size(1440, 1320)
            await tab.open(f"{live.url}/")
            await ask(tab)
            picture = await tab.picture()
    path.write_bytes(picture)  # noqa: ASYNC240 - nothing runs beside it


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

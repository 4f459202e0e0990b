"""How a person uses the playground, and what the scripted engine answers."""

from __future__ import annotations

import json
from typing import Any

from tests.browser.chromium import Tab

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'
REPLIES: list[dict[str, Any]] = [
    {"contains": "hang", "pieces": ["one", " two", " three"], "hang_after": 2},
    {"contains": "fail", "pieces": ["one", " two", " three"], "fail_after": 2},
    {"contains": "call", "pieces": [CALL]},
    {
        "contains": "mark up",
        "pieces": ["<script>window.hit = 1</script><img src=x onerror=hit=1>", "</", "ol></main>&lt;"],
    },
    {"contains": "novel", "pieces": [f" word{number}" for number in range(2000)]},
    {"contains": "two", "pieces": ["first"], "others": [{"pieces": ["second"]}]},
    {
        "default": True,
        "pieces": ["Good", " <b>day</b>"],
        "step_ms": [200, 28, 30],
        "queue_wait_us": [5149, 60, 39],
    },
]
COMPLETE = "document.getElementById('status').textContent.startsWith('The answer is complete')"


async def text(page: Tab, identifier: str) -> str:
    found: str = await page.value(f"document.getElementById({identifier!r}).textContent")
    return found


async def fill(page: Tab, name: str, value: str) -> None:
    """Type into a parameter, or choose one of its values."""
    await page.value(
        f"(() => {{ const control = document.getElementById('field-{name}'); control.value = {json.dumps(value)};"
        " control.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


async def say(page: Tab, words: str) -> None:
    await page.value("document.getElementById('say').focus()")
    await page.write(words)
    await page.press("Enter")


async def turns(page: Tab) -> list[str]:
    script = "[...document.querySelectorAll('#turns .turn')].map((row) => row.querySelector('.text').textContent)"
    found: list[str] = await page.value(script)
    return found

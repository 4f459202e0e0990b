"""Chromium without a window, driven over its debugging pipe: commands and events as JSON, a NUL behind each."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_MAX_MESSAGE: Final = 64 * 1024 * 1024
_PATIENCE_S: Final = 60
_OPTIONS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_KEYS: Final = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
"""Name -> the code that older handlers of key events see."""


class Browser:
    """A running Chromium."""

    def __init__(self, reader: asyncio.StreamReader, output: int) -> None:
        self._reader = reader
        self._output = output
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}

    async def receive(self) -> None:
        """Hand out what it says, until it ends."""
        while True:
            try:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                return
            waiting = self._waiting.pop(message.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            elif (tab := self._tabs.get(message.get("sessionId"))) is not None:
                tab.take_event(message["method"], message["params"])

    async def command(self, method: str, params: dict[str, Any], session: str | None = None) -> Any:
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        words = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._output, json.dumps(words).encode() + b"\0")
        answer = await asyncio.wait_for(future, _PATIENCE_S)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """An empty page that shares nothing with those before it."""
        context = await self.command("Target.createBrowserContext", {})
        target = await self.command("Target.createTarget", {"url": "about:blank", **context})
        made = await self.command("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        tab = self._tabs[made["sessionId"]] = Tab(self, made["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.command(f"{domain}.enable")
        try:
            yield tab
        finally:
            del self._tabs[made["sessionId"]]
            await self.command("Target.disposeBrowserContext", context)


class Tab:
    """One page. ``complaints`` are exceptions of its scripts and whatever its policy refused."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requested: list[str] = []
        """URLs of all requests."""

    def take_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] not in ("network", "recommendation"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    async def command(self, method: str, **params: Any) -> Any:
        return await self._browser.command(method, params, self._session)

    async def open(self, url: str) -> None:
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _PATIENCE_S)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window in pixels, and whether the system prefers dark."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def value(self, expression: str) -> Any:
        """Of an expression in JavaScript, awaited there when it is a promise."""
        found = await self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression holds: the page looks after each change of itself."""
        await self.value(f"""new Promise((resolve, reject) => {{
            const look = () => {{ if ({expression}) {{ watch.disconnect(); resolve(); }} }};
            const watch = new MutationObserver(look);
            watch.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
            setTimeout(() => reject(new Error("never")), 30000);
            look();
        }})""")

    async def press(self, key: str) -> None:
        options = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"Enter": "\r", " ": " "}.get(key)
        await self.command("Input.dispatchKeyEvent", type="keyDown", **options, **({"text": text} if text else {}))
        await self.command("Input.dispatchKeyEvent", type="keyUp", **options)

    async def write(self, text: str) -> None:
        """Type into whatever has the focus."""
        await self.command("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """What the window shows, as PNG."""
        shot = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Browser]:
    """A fresh browser; ``profile`` is an empty folder."""
    to_read, output = os.pipe()
    answers, to_write = os.pipe()
    words = (*_OPTIONS, f"--user-data-dir={profile}", "about:blank")
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", str(CHROMIUM), *words,
        pass_fds=(to_read, to_write), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(to_write)
    reader = asyncio.StreamReader(limit=_MAX_MESSAGE)
    source, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb")
    )
    browser = Browser(reader, output)
    receiving = asyncio.create_task(browser.receive())
    try:
        yield browser
    finally:
        os.close(output)  # which ends it
        await process.wait()
        await receiving
        source.close()

"""Debian's Chromium, headless, driven by the DevTools protocol on a loopback socket.

Waits are for events, not for times: `load` returns after the load event and the first contentful
paint. Only loopback addresses are resolved.
https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.controlplane.ports import LOOPBACK

CHROMIUM: Final = shutil.which("chromium")
_START_S: Final = 90.0
_ANSWER_S: Final = 60.0
_POLL_S: Final = 0.05
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {LOOPBACK}, EXCLUDE localhost",
    "about:blank",
)
#: Resolves to the milliseconds from the start of the navigation to the first contentful paint.
_PAINT: Final = """
new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint) done(paint.startTime);
    else setTimeout(look, 20);
  };
  look();
})
"""
_SIZES: Final = """
(() => {
  const [page] = performance.getEntriesByType("navigation");
  const others = performance.getEntriesByType("resource");
  return [page.responseEnd, page.decodedBodySize, 1 + others.length];
})()
"""


class BrowserError(Exception):
    """Chromium refused a command or did not answer."""


@dataclass(slots=True, frozen=True)
class Loaded:
    """One load of a page: times in milliseconds from its start, size of the decoded document."""

    paint_ms: float
    answered_ms: float
    n_bytes: int
    n_requests: int


class Browser:
    """One page of a browser with its own profile."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, profile: Path, *flags: str) -> AsyncIterator["Browser"]:
        """A browser with these further flags, until the block ends."""
        assert CHROMIUM
        process = await asyncio.create_subprocess_exec(
            CHROMIUM, *flags, f"--user-data-dir={profile}", *_FLAGS,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            url = await _debugger(profile / "DevToolsActivePort")
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(url, max_msg_size=0) as socket,
            ):
                browser = cls(socket)
                await browser._attach()
                yield browser
        finally:
            process.terminate()
            await process.wait()

    async def load(self, url: str) -> Loaded:
        """Go to the URL, following redirects, and return once it is painted."""
        await self.evaluate("window.isLeft = true")
        told = await self._send("Page.navigate", url=url)
        if "errorText" in told:
            raise BrowserError(f"{url}: {told['errorText']}")
        return await self.loaded()

    async def loaded(self) -> Loaded:
        """The next page, after a click or a form, once it is painted."""
        paint_ms = await self._until("window.isLeft ? false : true", _PAINT)
        await self._until("document.readyState === 'complete'", "true")
        answered_ms, n_bytes, n_requests = await self.evaluate(_SIZES)
        return Loaded(paint_ms, answered_ms, n_bytes, n_requests)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page; promises are awaited."""
        told = await self._send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in told:
            raise BrowserError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def submit(self, fields: dict[str, str]) -> Loaded:
        """Fill in inputs by name and submit the form of the last one; returns the next page."""
        for name, value in fields.items():
            await self.evaluate(f"document.getElementsByName({name!r})[0].value = {value!r}")
        last = next(reversed(fields))
        await self.evaluate(
            f"window.isLeft = true; document.getElementsByName({last!r})[0].form.requestSubmit()"
        )
        return await self.loaded()

    async def click(self, words: str) -> Loaded:
        """Click the link or button with this text; returns the next page."""
        await self.evaluate(f"""
          window.isLeft = true;
          Array.from(document.querySelectorAll("a, button"))
            .find((each) => each.innerText === {words!r}).click()
        """)
        return await self.loaded()

    async def text(self) -> str:
        """The text that the page shows."""
        return str(await self.evaluate("document.body.innerText"))

    async def until_text(self, wanted: str) -> None:
        """Return once the page shows this; after the timeout, BrowserError with the page's text."""
        async with asyncio.timeout(_ANSWER_S):
            while wanted not in await self.text():
                await asyncio.sleep(_POLL_S)

    async def picture(self, path: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Write a PNG of the page in a window of this size."""
        await self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._send("Emulation.setEmulatedMedia", features=[scheme])
        told = await self._send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(told["data"]))

    async def _attach(self) -> None:
        made = await self._send("Target.createTarget", url="about:blank")
        told = await self._send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = told["sessionId"]
        await self._send("Page.enable")

    async def _until(self, is_met: str, expression: str) -> Any:
        """The value of `expression` once `is_met`, even if the page is replaced meanwhile."""
        async with asyncio.timeout(_ANSWER_S):
            while True:
                try:
                    if await self.evaluate(is_met):
                        return await self.evaluate(expression)
                except BrowserError:
                    pass
                await asyncio.sleep(_POLL_S)

    async def _send(self, method: str, **given: object) -> dict[str, Any]:
        """Send one command and return its answer; events are ignored."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        async with asyncio.timeout(_ANSWER_S):
            while True:
                told: dict[str, Any] = await self._socket.receive_json()
                if told.get("id") != number:
                    continue
                if "error" in told:
                    raise BrowserError(f"{method}: {told['error']['message']}")
                result: dict[str, Any] = told["result"]
                return result


async def _debugger(port_file: Path) -> str:
    """The address at which the browser listens, once it has written the file."""
    async with asyncio.timeout(_START_S):
        while True:
            lines = port_file.read_text().splitlines() if port_file.exists() else []
            if len(lines) == 2:
                return f"ws://{LOOPBACK}:{lines[0]}{lines[1]}"
            await asyncio.sleep(_POLL_S)

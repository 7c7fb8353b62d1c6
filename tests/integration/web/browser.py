"""Debian's headless Chromium: the document after scripts have run, and screenshots."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

CHROMIUM: Final = shutil.which("chromium")
_LIMIT_S: Final = 120


def open_page(
    url: str, work: Path, *, picture: Path | None = None, size: str = "1280,800", dark: bool = False
) -> tuple[str, str]:
    """The document and what the browser's console says; writes a PNG where `picture` is given.

    Pages are not live: virtual time stands still while a stream is open.
    """
    assert CHROMIUM
    url = f"{url}{'&' if '?' in url else '?'}live=0"
    argv = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--no-first-run",
        "--enable-logging=stderr",
        "--hide-scrollbars",
        f"--user-data-dir={work / 'profile'}",
        f"--window-size={size}",
        "--virtual-time-budget=2000",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *([f"--screenshot={picture}"] if picture else ["--dump-dom"]),
        url,
    ]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=_LIMIT_S, check=True, cwd=work
    )
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, console

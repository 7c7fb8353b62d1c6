"""Named points at which a test may have the process killed.

`BALLAST_FAILPOINT=control.released:3` ends the process with SIGKILL when it reaches that point the
third time; without the variable a point costs one comparison. Points stand on both sides of every
write that makes others visible: those are the moments at which a crash leaves something half done.
"""

import os
import signal
from typing import Final

#: Where the points are; a name that is not here is refused at start, so a test can't pass on none.
POINTS: Final = frozenset(
    {
        "control.before-rows",
        "control.after-rows",
        "control.before-release",
        "control.released",
        "control.before-evict",
        "control.evicted",
        "ledger.row-written",
        "serve.before-row",
        "serve.before-binding",
        "serve.after-binding",
    }
)


def _armed() -> tuple[str, int]:
    text = os.environ.get("BALLAST_FAILPOINT", "")
    name, _, count = text.partition(":")
    if name and name not in POINTS:
        raise ValueError(f"BALLAST_FAILPOINT={text}: no such point; there are {sorted(POINTS)}")
    return name, int(count or 1)


_name, _left = _armed()


def reach(point: str) -> None:
    """Say that execution is at `point`; ends the process when a test asked for it."""
    global _left  # noqa: PLW0603  # one process, one armed point
    if point != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

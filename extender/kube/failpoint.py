"""Where a test may have the process killed: on both sides of every write to the API server.

`BALLAST_FAILPOINT="after PATCH pods:3"` ends the process with SIGKILL when the API server has
accepted its third PATCH of a pod, `before` right before the request is sent; a subresource is named
as in `pods/binding`. Only writes are visible to others, so these are the moments at which a crash
leaves something half done. Without the variable a write costs two comparisons.
"""

import os
import re
import signal
from typing import Final, Literal

Side = Literal["before", "after"]
_POINT: Final = re.compile(r"((?:before|after) (?:POST|PUT|PATCH|DELETE) [a-z/]+)(?::([1-9]\d*))?")


def _armed() -> tuple[str, int]:
    text = os.environ.get("BALLAST_FAILPOINT", "")
    if not text:
        return "", 0
    found = _POINT.fullmatch(text)
    if found is None:
        raise ValueError(f"BALLAST_FAILPOINT={text}: no such point; one is `after PATCH pods:3`")
    return found[1], int(found[2] or 1)


_name, _left = _armed()


def reach(side: Side, method: str, resource: str) -> None:
    """Say that a write is about to be sent or was accepted; ends the process if a test asked."""
    global _left  # noqa: PLW0603  # one process, one armed point
    if not _name or f"{side} {method} {resource}" != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

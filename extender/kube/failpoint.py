"""Points at which a test may kill the process: before and after every write to the API server.

`BALLAST_FAILPOINT="after PATCH pods:3"` kills the process with SIGKILL when the API server has
accepted its third PATCH of a pod; `before` kills it right before the request is sent. A subresource
is written as in `pods/binding`. Only writes are visible to others, so only at these points can a
crash leave something unfinished. Without the variable, a write costs two comparisons.
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
    """Call this before a write is sent and after it was accepted; may kill the process."""
    global _left  # noqa: PLW0603  # one process, one armed point
    if not _name or f"{side} {method} {resource}" != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)

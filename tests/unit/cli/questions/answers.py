"""Answers that the tests of questions begin with."""

from typing import Any, Final

#: What every answer of `why` has.
EXPLANATION: Final[dict[str, Any]] = {
    "workload": "a/b",
    "pods": 1,
    "request": "1",
    "workKind": "training",
    "priority": 50,
    "isPreemptible": True,
    "state": "waits",
    "asOf": {"time": "t", "resourceVersion": "1"},
}

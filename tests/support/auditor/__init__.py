"""The auditor: follows every revision of a cluster and reports which invariants were violated.

`Checker` is the pure judge; `Auditor` runs it on a live cluster, `replay` on a recording. It reads
the cluster's etcd with its own reader, since it must not rely on the code that it judges.
"""

from tests.support.auditor.auditor import Auditor
from tests.support.auditor.checker import Checker, Counts, Violation
from tests.support.auditor.etcd import Store
from tests.support.auditor.history import Change, replay
from tests.support.auditor.rules import Limits
from tests.support.auditor.verdict import Verdict

__all__ = [
    "Auditor",
    "Change",
    "Checker",
    "Counts",
    "Limits",
    "Store",
    "Verdict",
    "Violation",
    "replay",
]

"""Whose turn it is: the most deprived department, in it the most deprived project, in it the first
of its line. Deprived is who holds the smallest part of its fair share; the parts are integers of
more digits than two different ones agree in, so there is neither a float nor a tie that is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from extender.policy.chunks import Pending
from extender.policy.queues import RESOURCES, Queue

#: Kinds of work that go before training, as long as their project is within its quota.
_FIRST_KINDS = ("inference", "interactive", "build")


#: Shares are compared as integers of this precision: two different ones of less than 2**31 milli
#: differ by more.
_ONE: Final = 1 << 62


def deprivation(queue: Queue) -> int:
    """How much of its fair share it holds, of the resource of which it holds most; 1 is `_ONE`."""
    most = 0
    for has, share in zip(queue.allocated, queue.share, strict=True):
        if has > 0:
            most = max(most, has * _ONE // share if share > 0 else has << 96)
    return most


def turn_key(queue: Queue) -> tuple[bool, int, int, str]:
    """Sorts the most deprived first; queues without any share of GPUs come last."""
    return not any(queue.share), deprivation(queue), *queue.age_key


@dataclass(slots=True)
class Line:
    """What waits in one project: `first` has the kinds that go first within quota."""

    leaf: Queue
    first: list[Pending] = field(default_factory=list)
    rest: list[Pending] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.first) + len(self.rest)

    def push(self, pending: Pending) -> None:
        """Add a workload, or bring back one that has more pods."""
        heappush(self._heap_of(pending), pending)

    def pop(self) -> Pending:
        """Take the one whose turn it is."""
        if not self.first or not self.rest:
            return heappop(self.first or self.rest)
        is_first = self._fits_quota(self.first[0]) or self.first[0] < self.rest[0]
        return heappop(self.first if is_first else self.rest)

    def _heap_of(self, pending: Pending) -> list[Pending]:
        return self.first if pending.workload.kind in _FIRST_KINDS else self.rest

    def _fits_quota(self, pending: Pending) -> bool:
        leaf = self.leaf
        has = leaf.allocated if pending.workload.is_preemptible else leaf.allocated_np
        need = pending.need()
        return all(has[r] + need[r] <= leaf.quota[r] for r in RESOURCES if need[r])


@dataclass(slots=True, eq=False)
class _Branch:
    """A queue with what waits below it: the branches of its children, or its own line.

    `key` is its turn key when it was last sorted in.
    """

    queue: Queue | None
    line: Line | None = None
    heap: "list[_Branch]" = field(default_factory=list)
    key: tuple[bool, int, int, str] = (False, 0, 0, "")

    def __lt__(self, other: "_Branch") -> bool:
        return self.key < other.key


class Turns:
    """A tree of heaps over the queues of one pool. After each `pop` comes one `settle`."""

    def __init__(self, waiting: Iterable[tuple[Queue, Pending]]) -> None:
        self._root = _Branch(None)
        self._branches: dict[Queue, _Branch] = {}
        for leaf, pending in waiting:
            branch = self._branch_of(leaf)
            if branch.line is None:
                branch.line = Line(leaf)
            branch.line.push(pending)
        self.resift()

    def pop(self) -> tuple[Queue, Pending] | None:
        """The queue and workload whose turn it is, or None when nothing waits."""
        branch = self._root
        if not branch.heap:
            return None
        while branch.line is None:
            branch = branch.heap[0]
        return branch.line.leaf, branch.line.pop()

    def settle(self, again: Pending | None = None) -> None:
        """Sort in again the queue that had its turn; `again` still has pods that wait."""
        path = [self._root]
        while path[-1].line is None:
            path.append(path[-1].heap[0])
        line = path[-1].line
        if again is not None:
            line.push(again)
        is_empty = not line
        for branch, above in zip(reversed(path[1:]), reversed(path[:-1]), strict=True):
            if is_empty:
                heappop(above.heap)
            else:
                _set_key(branch)
                heapreplace(above.heap, branch)
            is_empty = not above.heap

    def resift(self) -> None:
        """Sort everything again, after queues changed that did not have the turn."""
        for branch in self._branches.values():
            _set_key(branch)
        for branch in (self._root, *self._branches.values()):
            heapify(branch.heap)

    def _branch_of(self, queue: Queue) -> _Branch:
        branch = self._branches.get(queue)
        if branch is None:
            branch = self._branches[queue] = _Branch(queue)
            above = self._root if queue.parent is None else self._branch_of(queue.parent)
            above.heap.append(branch)
        return branch


def _set_key(branch: _Branch) -> None:
    assert branch.queue is not None
    branch.key = turn_key(branch.queue)

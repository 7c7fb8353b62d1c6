"""Whose turn it is: the most deprived department, in it the most deprived project, in it the first
of its line. Deprived is who holds the smallest part of its fair share; the parts are compared by
cross-multiplication, so that there is neither a float nor a tie that is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from extender.policy.chunks import Pending
from extender.policy.queues import Queue

#: Kinds of work that go before training, as long as their project is within its quota.
_FIRST_KINDS = ("inference", "interactive", "build")


def is_more_deprived(left: Queue, right: Queue) -> bool:
    """Whether `left` is to be served before `right`; queues without a share come last."""
    if left.share_milli and right.share_milli:
        mine = left.allocated_milli * right.share_milli
        its = right.allocated_milli * left.share_milli
        return mine < its if mine != its else left.age_key < right.age_key
    if left.share_milli or right.share_milli:
        return left.share_milli > 0
    if left.allocated_milli != right.allocated_milli:
        return left.allocated_milli < right.allocated_milli
    return left.age_key < right.age_key


@dataclass(slots=True)
class Line:
    """What waits in one project: `first` has the kinds that go first within quota."""

    project: Queue
    first: list[Pending] = field(default_factory=list)
    rest: list[Pending] = field(default_factory=list)

    def __lt__(self, other: "Line") -> bool:
        return is_more_deprived(self.project, other.project)

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
        project = self.project
        has = (
            project.allocated_milli
            if pending.workload.is_preemptible
            else project.allocated_np_milli
        )
        return has + pending.need_milli() <= project.quota_milli


@dataclass(slots=True)
class _Branch:
    """A department with the lines of its projects, most deprived on top."""

    department: Queue
    lines: list[Line]

    def __lt__(self, other: "_Branch") -> bool:
        return is_more_deprived(self.department, other.department)


class Turns:
    """A two-level heap over the projects of one pool. After each `pop` comes one `settle`."""

    def __init__(self, waiting: Iterable[tuple[Queue, Pending]]) -> None:
        lines: dict[int, Line] = {}
        branches: dict[int, _Branch] = {}
        for project, pending in waiting:
            line = lines.get(id(project))
            if line is None:
                assert project.parent is not None
                line = lines[id(project)] = Line(project)
                branch = branches.setdefault(id(project.parent), _Branch(project.parent, []))
                branch.lines.append(line)
            line.push(pending)
        self._branches = list(branches.values())
        self.resift()

    def pop(self) -> tuple[Queue, Pending] | None:
        """The project and workload whose turn it is, or None when nothing waits."""
        if not self._branches:
            return None
        line = self._branches[0].lines[0]
        return line.project, line.pop()

    def settle(self, again: Pending | None = None) -> None:
        """Sort in again the project that had its turn; `again` still has pods that wait."""
        branch = self._branches[0]
        line = branch.lines[0]
        if again is not None:
            line.push(again)
        if line:
            heapreplace(branch.lines, line)
        else:
            heappop(branch.lines)
        if branch.lines:
            heapreplace(self._branches, branch)
        else:
            heappop(self._branches)

    def resift(self) -> None:
        """Sort everything again, after queues changed that did not have the turn."""
        for branch in self._branches:
            heapify(branch.lines)
        heapify(self._branches)

"""The order of turns: the most deprived department, in it the most deprived project, and there the
first in line. Where the work of a project names users, what precedes other work of the project (by
kind within quota, then by priority) has its turn first, whichever user it is of; at the same
priority, the most deprived user has.

Among queues of one parent the order is

1. work that keeps its queue within quota;
2. work that is larger than its queue's share and has waited long, where the queue held less than
   its share lately;
3. work that keeps its queue within its share;
4. work that lifts a queue above its share which holds less than that: the odd GPU;
5. everything else, and work without GPUs of queues that state no quota of CPU or memory,

within each of these the lower rank. Within the first three the queue goes first that would hold the
smallest part of what it is due, of the resource of which that is most. Within the last two it is
the one that would hold least above its quota for its weight, by which reclaim goes as well; and
where past use counts, the one that held least lately for what it is due without past use, of
several one whose share in whole GPUs has room. Ties go to the queue that held least lately, then to
the older. Parts are integers of more digits than two different ones agree in, so there is neither a
float nor a tie that is none.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final

from extender.policy.queues.queue import RESOURCES, Queue, frozen
from extender.policy.workloads.first_kinds import FIRST_KINDS, FirstKinds
from extender.policy.workloads.pending import Pending, SortKey, has_waited_long
from extender.state.model import GPU, NOTHING, Amounts

#: Parts are compared as integers of so many binary places: two different ones of less than 2**31
#: milli differ by more.
_DIGITS: Final = 62
#: A part of nothing: more than any other.
_ENDLESS: Final = 1 << 96

#: The classes of the module's list.
IN_QUOTA: Final = 1
OVERDUE: Final = 2
IN_SHARE: Final = 3
ODD: Final = 4
ABOVE: Final = 5

#: Sorts the most deprived first; see the module for what comes before what.
TurnKey = tuple[int, int, int, int, bool, int, int, int, int, str]
#: Whether the work is not of a first kind within its project's quota, and its priority, negated.
Precedence = tuple[bool, int]
NO_PRECEDENCE: Final[Precedence] = (False, 0)


def turn_key(queue: Queue, need: Amounts, *, has_waited: bool = False) -> TurnKey:
    """Sorts a queue by the first workload in its line, which needs `need`; `has_waited`: for
    long."""
    tier, has_no_due = IN_QUOTA, False
    after = before = lately = surplus = 0
    allocated, share, quota, due = queue.allocated, queue.exact_share, queue.quota, queue.due
    for resource in RESOURCES:
        has, more = allocated[resource], need[resource]
        together = has + more
        if together <= 0:
            continue
        if together > quota[resource]:
            over = ODD if has < share[resource] else ABOVE
            tier = max(tier, IN_SHARE if together <= share[resource] else over)
            weight = queue.figures.figures[resource].weight
            above = together - quota[resource]
            surplus = max(surplus, (above << _DIGITS) // weight if weight else above * _ENDLESS)
        whole = due[resource]
        if whole > 0:
            part = (together << _DIGITS) // whole
            part_before = (has << _DIGITS) // whole if more else part
            if held_lately := queue.held_lately[resource]:
                # Past use bends the due already, and is not counted twice.
                lately = max(lately, (held_lately << _DIGITS) // max(1, queue.unbent_due[resource]))
        else:
            has_no_due = has_no_due or more > 0
            part, part_before = together * _ENDLESS, has * _ENDLESS
        after = max(after, part)
        before = max(before, part_before)
    if queue.is_host_reclaimable(need):
        tier = ABOVE
    if tier == ODD and has_waited and queue.may_exceed_share(need):
        tier = OVERDUE
    rank, age, name = queue.figures.rank, queue.created_at, queue.name
    if tier == ODD and queue.is_bent and allocated[GPU] + need[GPU] > queue.share[GPU]:
        has_no_due = True
    if tier < ODD or queue.is_bent:
        # Where past use counts, reclaim leaves the odd GPU to the queue that has its turn.
        surplus = 0
    first = lately if tier == OVERDUE or tier >= ODD else 0
    return tier, rank, surplus, first, has_no_due, after, before, lately, age, name


_Entry = tuple[bool, SortKey, Pending]


@dataclass(slots=True)
class JobQueue:
    """What waits in one queue: `kinds` has the kinds that go first within quota, `rest` the others.

    Both have the first in line last. Entries are marked False that the last cycle had no time for:
    they go before others.
    """

    leaf: Queue
    firsts: FirstKinds
    overdue: Collection[str] = ()
    kinds: list[_Entry] = field(default_factory=list)
    rest: list[_Entry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds) + len(self.rest)

    def fill(self, waiting: Iterable[Pending]) -> None:
        """Add many at once."""
        for pending in waiting:
            entries, entry = self._entry_of(pending)
            entries.append(entry)
        self.kinds.sort(reverse=True)
        self.rest.sort(reverse=True)

    def push(self, pending: Pending) -> None:
        """Add a workload, or bring back one that has more pods."""
        entries, entry = self._entry_of(pending)
        # What comes back goes soon again, so it is near the end.
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            if entry < entries[middle]:
                low = middle + 1
            else:
                high = middle
        entries.insert(low, entry)

    def _entry_of(self, pending: Pending) -> tuple[list[_Entry], _Entry]:
        """The list that takes the workload, and its entry there."""
        entries = self.kinds if pending.workload.kind in FIRST_KINDS else self.rest
        return entries, (pending.workload.key not in self.overdue, pending.sort_key, pending)

    def head(self) -> Pending:
        """The workload that has its turn."""
        return self._first()[-1][2]

    def precedence(self) -> Precedence:
        """Sorts lines of users of one project by what is first in them."""
        entries = self._first()
        head = entries[-1][2]
        is_first = entries is self.kinds and self._fits_quota(head)
        return not is_first, -head.workload.priority

    def pop(self) -> Pending:
        """Remove and return the workload that has its turn."""
        return self._first().pop()[2]

    def pop_alike(self, pending: Pending) -> Pending | None:
        """Remove and return the workload that has its turn, if it is like `pending`."""
        entries = self._first()
        return entries.pop()[2] if entries and pending.is_like(entries[-1][2]) else None

    def clear(self) -> list[Pending]:
        """Take all, in order."""
        everyone = sorted([*self.kinds, *self.rest])
        self.kinds.clear()
        self.rest.clear()
        return [pending for _, _, pending in everyone]

    def _first(self) -> list[_Entry]:
        """The entries of which the last has the turn."""
        if not self.kinds or not self.rest:
            return self.kinds or self.rest
        first, other = self.kinds[-1], self.rest[-1]
        # Whatever else is bound to quota as well is passed by priority alone.
        precedes = other[-1].workload.is_preemptible and self._fits_quota(first[-1])
        return self.kinds if precedes or first < other else self.rest

    def _fits_quota(self, pending: Pending) -> bool:
        project, need = self.leaf.project, pending.need()
        is_preemptible = pending.workload.is_preemptible
        has = self.firsts.held(project) if is_preemptible else frozen(project.allocated_np)
        return all(has[r] + need[r] <= project.quota[r] for r in RESOURCES if need[r])


@dataclass(slots=True, eq=False)
class _Branch:
    """A queue with what waits below it: the branches of its children, or its own line.

    `key` is its turn key when it was last sorted in, `held` what it held then, `need` what the
    first below it needed, and `has_waited` whether that has waited for long. `is_barred`: that one
    may hold no more by limits and quotas. It has its turn at once, takes nothing, and makes room
    for what is behind it.
    """

    queue: Queue | None
    line: JobQueue | None = None
    heap: "list[_Branch]" = field(default_factory=list)
    key: TurnKey = (IN_QUOTA, 0, 0, 0, False, 0, 0, 0, 0, "")
    need: Amounts = NOTHING
    has_waited: bool = False
    held: list[int] = field(default_factory=list)
    is_barred: bool = False
    precedence: Precedence = NO_PRECEDENCE

    def __lt__(self, other: "_Branch") -> bool:
        if self.is_barred is not other.is_barred:
            return self.is_barred
        return (self.precedence, self.key) < (other.precedence, other.key)

    def set_key(self, now_s: int) -> bool:
        """Work its key out again; returns whether it may have changed. Those below are in order."""
        queue, precedence = self.queue, NO_PRECEDENCE
        assert queue is not None
        if self.line is not None:
            if queue.is_user and not queue.is_workload:
                precedence = self.line.precedence()
            head = self.line.head()
            need = head.need()
            is_np = not head.workload.is_preemptible
            is_barred = not queue.may_hold(need, is_np=is_np)
            has_waited = has_waited_long(head.workload, now_s)
        else:
            first = self.heap[0]
            need, is_barred, has_waited = first.need, first.is_barred, first.has_waited
        if (
            is_barred is self.is_barred
            and has_waited is self.has_waited
            and precedence == self.precedence
            and self.held == queue.allocated
            and (need is self.need or need == self.need)
        ):
            return False
        self.need, self.held, self.is_barred = need, queue.allocated[:], is_barred
        self.has_waited, self.precedence = has_waited, precedence
        self.key = turn_key(queue, need, has_waited=has_waited)
        return True


class Turns:
    """A tree of heaps over the queues of one pool. After each `pop`, and what is taken from
    `alike`, comes one `settle` or `pass_over`."""

    def __init__(
        self,
        waiting: Iterable[tuple[Queue, Pending]],
        firsts: FirstKinds,
        now_s: int,
        *,
        overdue: Collection[str] = (),
    ) -> None:
        self._root = _Branch(None)
        self._branches: dict[Queue, _Branch] = {}
        self._now_s = now_s
        by_leaf: dict[Queue, list[Pending]] = {}
        for leaf, pending in waiting:
            by_leaf.setdefault(leaf, []).append(pending)
        for leaf, listed in by_leaf.items():
            line = self._branch_of(leaf).line = JobQueue(leaf, firsts, overdue)
            line.fill(listed)
        self._deepest_first = sorted(
            self._branches.values(),
            key=lambda branch: -len(branch.queue.chain if branch.queue else ()),
        )
        self.resift()

    def pop(self) -> tuple[Queue, Pending] | None:
        """The queue and workload that have their turn, or None when nothing waits."""
        branch = self._root
        if not branch.heap:
            return None
        while branch.line is None:
            branch = branch.heap[0]
        return branch.line.leaf, branch.line.pop()

    def settle(self, again: Pending | None = None) -> None:
        """Sort in again the queue that had its turn; `again` still has pods that wait."""
        path = self._path()
        if again is not None and (line := path[-1].line) is not None:
            line.push(again)
        self._sort_in(path)

    def alike(self, pending: Pending) -> Iterator[Pending]:
        """Take out, one by one, what is next in line behind `pending`, which has its turn and no
        place, as far as it is like it: each would have the next turn."""
        line = self._path()[-1].line
        while line is not None and (other := line.pop_alike(pending)) is not None:
            yield other

    def pass_over(self, *, holds_up: bool) -> list[Pending]:
        """The one that had its turn has no place. Returns what is passed over with it: where it
        `holds_up` its queue, all that waits behind it."""
        path = self._path()
        line = path[-1].line
        behind = line.clear() if holds_up and line is not None else []
        self._sort_in(path)
        return behind

    def resift(self, changed: Iterable[Queue] | None = None) -> None:
        """Sort everything again, after queues changed that did not have the turn.

        Where it is said which, nothing is done if nothing waits in any of them.
        """
        if changed is not None and self._branches.keys().isdisjoint(changed):
            return
        for branch in self._deepest_first:
            heapify(branch.heap)
            if branch.heap or branch.line:
                branch.set_key(self._now_s)
        heapify(self._root.heap)

    def _path(self) -> list[_Branch]:
        """The branches of the queue that has the turn, from the root down."""
        path = [self._root]
        while path[-1].line is None:
            path.append(path[-1].heap[0])
        return path

    def _sort_in(self, path: list[_Branch]) -> None:
        is_empty = not path[-1].line
        for at in range(len(path) - 1, 0, -1):
            heap = path[at - 1].heap
            if is_empty:
                heappop(heap)
                is_empty = not heap
            elif path[at].set_key(self._now_s):
                heapreplace(heap, path[at])

    def _branch_of(self, queue: Queue) -> _Branch:
        above = self._root
        for each in reversed(queue.chain):
            branch = self._branches.get(each)
            if branch is None:
                branch = self._branches[each] = _Branch(each)
                above.heap.append(branch)
            above = branch
        return above

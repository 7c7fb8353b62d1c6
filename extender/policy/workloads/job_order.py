"""The scheduling order: which pending workload is tried next.

At each level of the queue tree the most deprived queue is served first; in a leaf, the first
workload of its line. If workloads of a project name users, they are ordered across users by
precedence (kind within quota, then priority), and at equal precedence by the most deprived user.

Sibling queues are ordered by a tier for their next workload:

1. it keeps the queue within quota;
2. it is larger than the queue's share and has waited long, and the queue held less than its share
   lately;
3. it keeps the queue within its share;
4. it lifts the queue above its share from below: the odd GPU;
5. all others, and workloads without GPUs in queues that state no quota for CPU or memory;
6. it lifts a queue of weight 0 above its quota.

Within a tier the lower rank comes first. In tiers 1 and 3, next comes the queue that would hold the
smallest part of its due, by dominant resource; for workloads with GPUs, CPU and memory count only
where the queue states a quota of them. In tier 2 it is the queue that held least lately relative to
its due without past use. In tiers 4 to 6 it is the queue that would hold least above its quota
relative to its weight, as in reclaim. Where past use counts, these tiers go by what was held lately
instead. Ties go to the queue that held least lately; then the odd GPU goes to a queue whose share
in whole GPUs has room; then to the older. Fractions are compared as integers with enough bits to
tell any two apart, so floats are not needed.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final

from extender.policy.queues.queue import RESOURCES, Queue, frozen
from extender.policy.workloads.first_kinds import FIRST_KINDS, FirstKinds
from extender.policy.workloads.pending import Pending, SortKey, has_waited_long
from extender.state.model import GPU, NOTHING, UNLIMITED, Amounts

#: Binary places of fractions: two different ones with terms below 2**31 milli differ by more.
_BITS: Final = 62
#: A fraction with denominator zero: larger than any other.
_INFINITE: Final = 1 << 96

#: The tiers listed in the module docstring.
IN_QUOTA: Final = 1
OVERDUE: Final = 2
IN_SHARE: Final = 3
ODD: Final = 4
ABOVE: Final = 5
WEIGHTLESS: Final = 6

#: Sorts the most deprived queue first; see the module docstring.
TurnKey = tuple[int, int, int, int, bool, int, int, int, int, str]
#: False for a first kind within its project's quota, else True; and the negated priority.
Precedence = tuple[bool, int]
NO_PRECEDENCE: Final[Precedence] = (False, 0)


def _turn_key(queue: Queue, need: Amounts, *, has_waited: bool) -> TurnKey:
    """The sort key of a queue whose next workload requests `need`; `has_waited`: for long."""
    tier, goes_last = IN_QUOTA, False
    after = before = lately = surplus = 0
    allocated, share, quota, due = queue.allocated, queue.exact_share, queue.quota, queue.due
    for resource in RESOURCES:
        has, more = allocated[resource], need[resource]
        together = has + more
        is_unstated = resource != GPU and quota[resource] >= UNLIMITED
        if together <= 0 or (is_unstated and need[GPU]):
            # A part of the whole pool's CPUs would hide what the queue holds of its GPU quota.
            continue
        if together > quota[resource]:
            over = ODD if has < share[resource] else ABOVE
            tier = max(tier, IN_SHARE if together <= share[resource] else over)
            weight = queue.figures.figures[resource].weight
            above = together - quota[resource]
            surplus = max(surplus, (above << _BITS) // weight if weight else above * _INFINITE)
        whole = due[resource]
        if whole > 0:
            part = (together << _BITS) // whole
            part_before = (has << _BITS) // whole if more else part
            if held_lately := queue.held_lately[resource]:
                # Past use already bends the due, and must not count twice.
                lately = max(lately, (held_lately << _BITS) // max(1, queue.unbent_due[resource]))
        else:
            goes_last = goes_last or more > 0
            part, part_before = together * _INFINITE, has * _INFINITE
        after = max(after, part)
        before = max(before, part_before)
    tier = _tier_of(queue, need, tier, has_waited=has_waited, is_weightless=surplus >= _INFINITE)
    rank, age, name = queue.figures.rank, queue.created_at, queue.name
    if tier == ODD and allocated[GPU] + need[GPU] > queue.share[GPU]:
        goes_last = True
    if tier < ODD or queue.is_bent:
        # Where past use counts, reclaim leaves the odd GPU to the queue that is served first.
        surplus = 0
    first = lately if tier == OVERDUE or tier >= ODD else 0
    return tier, rank, surplus, first, goes_last, after, before, lately, age, name


def _tier_of(
    queue: Queue, need: Amounts, by_share: int, *, has_waited: bool, is_weightless: bool
) -> int:
    """The tier, given that by quota and share alone. `is_weightless`: the queue has weight 0 for
    what it would hold above its quota."""
    if queue.is_host_reclaimable(need):
        return ABOVE
    if by_share == ODD and has_waited and queue.may_exceed_share(need):
        return OVERDUE
    return WEIGHTLESS if is_weightless and by_share >= ODD else by_share


_Entry = tuple[bool, SortKey, Pending]


@dataclass(slots=True)
class JobQueue:
    """The pending workloads of one queue: `kinds` has the first kinds, `rest` all others.

    Both lists are in reverse order. Entries of workloads that the last cycle had no time for begin
    with False, so that they precede others.
    """

    leaf: Queue
    firsts: FirstKinds
    overdue: Collection[str] = ()
    kinds: list[_Entry] = field(default_factory=list)
    rest: list[_Entry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds) + len(self.rest)

    def fill(self, waiting: Iterable[Pending]) -> None:
        """Add many workloads at once."""
        for pending in waiting:
            entries, entry = self._entry_of(pending)
            entries.append(entry)
        self.kinds.sort(reverse=True)
        self.rest.sort(reverse=True)

    def push(self, pending: Pending) -> None:
        """Add a workload, or one again that has another chunk."""
        entries, entry = self._entry_of(pending)
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            if entry < entries[middle]:
                low = middle + 1
            else:
                high = middle
        entries.insert(low, entry)

    def _entry_of(self, pending: Pending) -> tuple[list[_Entry], _Entry]:
        """The list for the workload, and its entry there."""
        entries = self.kinds if pending.workload.kind in FIRST_KINDS else self.rest
        return entries, (pending.workload.key not in self.overdue, pending.sort_key, pending)

    def head(self) -> Pending:
        """The next workload."""
        return self._head_entries()[-1][2]

    def precedence(self) -> Precedence:
        """Sort key among the users of one project: the precedence of the next workload."""
        entries = self._head_entries()
        head = entries[-1][2]
        is_first = entries is self.kinds and self._fits_quota(head)
        return not is_first, -head.workload.priority

    def pop(self) -> Pending:
        """Remove and return the next workload."""
        return self._head_entries().pop()[2]

    def pop_alike(self, pending: Pending) -> Pending | None:
        """Remove and return the next workload if it is like `pending`."""
        entries = self._head_entries()
        return entries.pop()[2] if entries and pending.is_like(entries[-1][2]) else None

    def clear(self) -> list[Pending]:
        """Remove and return all workloads, in order."""
        all_entries = sorted([*self.kinds, *self.rest])
        self.kinds.clear()
        self.rest.clear()
        return [pending for _, _, pending in all_entries]

    def _head_entries(self) -> list[_Entry]:
        """The list whose last entry is next."""
        if not self.kinds or not self.rest:
            return self.kinds or self.rest
        first, other = self.kinds[-1], self.rest[-1]
        # A non-preemptible workload is bound to quota too, so only priority decides against it.
        precedes = first < other or (
            other[-1].workload.is_preemptible and self._fits_quota(first[-1])
        )
        return self.kinds if precedes else self.rest

    def _fits_quota(self, pending: Pending) -> bool:
        project, need, workload = self.leaf.project, pending.need(), pending.workload
        if workload.is_preemptible:
            return self.firsts.is_first(workload, project)
        has = frozen(project.allocated_np)
        return all(has[r] + need[r] <= project.quota[r] for r in RESOURCES if need[r])


@dataclass(slots=True, eq=False)
class _Branch:
    """A queue with its pending workloads: the branches of its children, or its own line.

    `key` is its turn key when it was last sorted in. `held` was its allocation then, `need` the
    request of the next workload, and `has_waited` tells whether that has waited long.
    `is_over_limit`: limits and quotas do not allow the next workload. It is then tried at once,
    which fails, so that the workloads behind it can be tried.
    """

    queue: Queue | None
    line: JobQueue | None = None
    heap: "list[_Branch]" = field(default_factory=list)
    key: TurnKey = (IN_QUOTA, 0, 0, 0, False, 0, 0, 0, 0, "")
    need: Amounts = NOTHING
    has_waited: bool = False
    held: list[int] = field(default_factory=list)
    is_over_limit: bool = False
    precedence: Precedence = NO_PRECEDENCE

    def __lt__(self, other: "_Branch") -> bool:
        if self.is_over_limit is not other.is_over_limit:
            return self.is_over_limit
        return (self.precedence, self.key) < (other.precedence, other.key)

    def set_key(self, now_s: int) -> bool:
        """Recompute the key; returns whether it may have changed. The children must be in order."""
        queue, precedence = self.queue, NO_PRECEDENCE
        assert queue is not None
        if self.line is not None:
            if queue.is_user and not queue.is_workload:
                precedence = self.line.precedence()
            head = self.line.head()
            need = head.need()
            is_np = not head.workload.is_preemptible
            is_over_limit = not queue.may_hold(need, is_np=is_np)
            has_waited = has_waited_long(head.workload, now_s)
        else:
            first = self.heap[0]
            need, is_over_limit, has_waited = first.need, first.is_over_limit, first.has_waited
        if (
            is_over_limit is self.is_over_limit
            and has_waited is self.has_waited
            and precedence == self.precedence
            and self.held == queue.allocated
            and (need is self.need or need == self.need)
        ):
            return False
        self.need, self.held, self.is_over_limit = need, queue.allocated[:], is_over_limit
        self.has_waited, self.precedence = has_waited, precedence
        self.key = _turn_key(queue, need, has_waited=has_waited)
        return True


class Turns:
    """The scheduling order of one pool's pending workloads: a tree of heaps over its queues.

    Each `pop`, and any use of `alike`, must be followed by one `settle` or `pass_over`.
    """

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
        """Remove and return the next workload with its queue; None if there is none."""
        branch = self._root
        if not branch.heap:
            return None
        while branch.line is None:
            branch = branch.heap[0]
        return branch.line.leaf, branch.line.pop()

    def settle(self, again: Pending | None = None) -> None:
        """Sort in the popped queue; `again` is the popped workload if it has another chunk."""
        path = self._path()
        if again is not None and (line := path[-1].line) is not None:
            line.push(again)
        self._sort_in(path)

    def alike(self, pending: Pending) -> Iterator[Pending]:
        """Remove, one by one, the next workloads that are like `pending`, which does not fit."""
        line = self._path()[-1].line
        while line is not None and (other := line.pop_alike(pending)) is not None:
            yield other

    def pass_over(self, *, holds_up: bool) -> list[Pending]:
        """The popped workload does not fit. If it `holds_up`, remove and return those behind it."""
        path = self._path()
        line = path[-1].line
        behind = line.clear() if holds_up and line is not None else []
        self._sort_in(path)
        return behind

    def resift(self, changed: Iterable[Queue] | None = None) -> None:
        """Sort everything again after queues other than the popped one changed.

        If `changed` is given, this does nothing unless one of them has pending workloads.
        """
        if changed is not None and self._branches.keys().isdisjoint(changed):
            return
        for branch in self._deepest_first:
            heapify(branch.heap)
            if branch.heap or branch.line:
                branch.set_key(self._now_s)
        heapify(self._root.heap)

    def _path(self) -> list[_Branch]:
        """The branches of the next queue, from the root down."""
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

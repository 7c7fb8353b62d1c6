"""The state of the cluster after a history, with the look-ups that rules need.

Only `World.apply` changes it. It judges nothing.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from extender.api import names
from tests.support.auditor.history import Change
from tests.support.auditor.sight import (
    GroupSeen,
    LedgerSeen,
    NodeSeen,
    PodSeen,
    PoolSeen,
    QueueSeen,
    RowSeen,
    Seen,
    see,
)

T = TypeVar("T", NodeSeen, GroupSeen, QueueSeen, PoolSeen)

#: States of rows that occupy a card; the cards of `nominated` rows may still have victims.
HOLDING = ("reserved", "bound")


@dataclass(slots=True, frozen=True)
class Step:
    """One change, with the object before and after it (None: it does not exist)."""

    change: Change
    before: Seen | None
    after: Seen | None

    @property
    def revision(self) -> int:
        return self.change.revision


@dataclass(slots=True)
class Since:
    """A figure, its previous value, and when (observer's clock) it changed."""

    now: int
    before: int
    changed_s: float


@dataclass(slots=True)
class World:
    """All followed objects by name, as of the last applied revision."""

    pods: dict[str, PodSeen] = field(default_factory=dict)
    pods_by_uid: dict[str, PodSeen] = field(default_factory=dict)
    ledgers: dict[str, LedgerSeen] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    groups: dict[str, GroupSeen] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    projects: dict[str, QueueSeen] = field(default_factory=dict)
    departments: dict[str, QueueSeen] = field(default_factory=dict)
    pools: dict[str, PoolSeen] = field(default_factory=dict)
    #: UID of a pod -> nodes with a row of the pod
    row_nodes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: (queue kind, queue, pool) -> quota in milli
    quotas: dict[tuple[str, str, str], Since] = field(default_factory=dict)
    #: (node, card index) -> when (observer's clock) the card became unhealthy
    sick_since: dict[tuple[str, int], float] = field(default_factory=dict)
    cordoned_since: dict[str, float] = field(default_factory=dict)

    def apply(self, change: Change) -> Step:
        """Apply one change and return it as a step."""
        after = None if change.is_deletion else see(change.kind, change.value)
        key = f"{change.namespace}/{change.name}"
        before: Seen | None = None
        match change.kind:
            case "Pod":
                before = self.pods.get(key)
                after = _ended_for_good(before, after)
                self._put_pod(key, before, after)
            case "GpuNode":
                before = self.ledgers.get(change.name)
                self._put_ledger(change, before, after)
            case "Node":
                before = _put(self.nodes, NodeSeen, change.name, after)
                self._note_cordon(change, after)
            case "GpuPodGroup":
                before = _put(self.groups, GroupSeen, key, after)
            case "GpuProject":
                before = _put(self.projects, QueueSeen, change.name, after)
                self._note_quota("GpuProject", change, after)
            case "GpuDepartment":
                before = _put(self.departments, QueueSeen, change.name, after)
                self._note_quota("GpuDepartment", change, after)
            case "GpuNodePool":
                before = _put(self.pools, PoolSeen, change.name, after)
        return Step(change, before, after)

    # -- look-ups ----------------------------------------------------------------------------

    def holds(self, row: RowSeen) -> bool:
        """Whether the row occupies its cards: it is reserved or bound, and its pod is live."""
        return row.state in HOLDING and self.is_live(row.uid)

    def is_live(self, uid: str) -> bool:
        """Whether the pod exists and has not ended; a terminating pod is live."""
        pod = self.pods_by_uid.get(uid)
        return pod is not None and not pod.has_ended

    def rows_of(self, uid: str) -> list[tuple[str, RowSeen]]:
        """(node, row) of every row of this pod."""
        return [
            (node, row)
            for node in sorted(self.row_nodes.get(uid, ()))
            for row in self.ledgers[node].rows
            if row.uid == uid
        ]

    def live_rows(self, *, with_nominated: bool = False) -> Iterator[tuple[str, RowSeen]]:
        """(node, row) of all rows that `holds`, or of all rows of live pods. O(rows)."""
        for name, ledger in self.ledgers.items():
            for row in ledger.rows:
                if self.holds(row) or (with_nominated and self.is_live(row.uid)):
                    yield name, row

    def pool_of(self, node: str) -> str:
        """The node pool that selects the node: the first by name, one without selector last."""
        seen = self.nodes.get(node)
        labels = seen.labels if seen else {}
        catch_all = ""
        for name in sorted(self.pools):
            selector = self.pools[name].selector
            if not selector:
                catch_all = catch_all or name
            elif all(labels.get(key) == value for key, value in selector.items()):
                return name
        return catch_all or names.DEFAULT_POOL

    def department_of(self, project: str) -> str:
        """The project's department; empty for a project that does not exist."""
        seen = self.projects.get(project)
        return seen.department if seen else ""

    def quota(self, kind: str, queue: str, pool: str) -> Since:
        """The quota of a GpuProject or GpuDepartment; 0 if it states none."""
        return self.quotas.get((kind, queue, pool)) or Since(0, 0, float("-inf"))

    def group_pods(self, key: str) -> list[PodSeen]:
        """The existing pods of a group `namespace/name`."""
        return [self.pods[member] for member in sorted(self.members.get(key, ()))]

    # -- applying changes --------------------------------------------------------------------

    def _put_pod(self, key: str, before: PodSeen | None, after: Seen | None) -> None:
        if before is not None:
            self.pods_by_uid.pop(before.uid, None)
            if before.group:
                self.members[f"{before.namespace}/{before.group}"].discard(key)
        self.pods.pop(key, None)
        if isinstance(after, PodSeen):
            self.pods[key] = after
            self.pods_by_uid[after.uid] = after
            if after.group:
                self.members[f"{after.namespace}/{after.group}"].add(key)

    def _put_ledger(self, change: Change, before: LedgerSeen | None, after: Seen | None) -> None:
        for row in before.rows if before else ():
            self.row_nodes[row.uid].discard(change.name)
        self.ledgers.pop(change.name, None)
        sick = set()
        if isinstance(after, LedgerSeen):
            self.ledgers[change.name] = after
            for row in after.rows:
                self.row_nodes[row.uid].add(change.name)
            sick = {
                (change.name, index)
                for index, device in after.devices.items()
                if device.health == "Unhealthy"
            }
        for known in [each for each in self.sick_since if each[0] == change.name]:
            if known not in sick:
                del self.sick_since[known]
        for each in sick:
            self.sick_since.setdefault(each, change.seen_s)

    def _note_cordon(self, change: Change, after: Seen | None) -> None:
        if isinstance(after, NodeSeen) and not after.is_schedulable:
            self.cordoned_since.setdefault(change.name, change.seen_s)
        else:
            self.cordoned_since.pop(change.name, None)

    def _note_quota(self, kind: str, change: Change, after: Seen | None) -> None:
        quota = after.quota if isinstance(after, QueueSeen) else {}
        known = {key[2] for key in self.quotas if key[:2] == (kind, change.name)}
        for pool in known | set(quota):
            key, now = (kind, change.name, pool), quota.get(pool, 0)
            old = self.quotas.get(key)
            if old is None:
                # A new queue had no quota before, and no allocation that could exceed it.
                self.quotas[key] = Since(now, now, change.seen_s)
            elif old.now != now:
                self.quotas[key] = Since(now, old.now, change.seen_s)


def _ended_for_good(before: PodSeen | None, after: Seen | None) -> Seen | None:
    """The pod with its old phase if it had ended: such a pod never runs again. For a moment kwok
    may report otherwise, if the pod was deleted as it started."""
    if before is None or not isinstance(after, PodSeen) or after.uid != before.uid:
        return after
    return replace(after, phase=before.phase) if before.has_ended else after


def _put(known: dict[str, T], kind: type[T], key: str, after: Seen | None) -> T | None:
    before = known.pop(key, None)
    if isinstance(after, kind):
        known[key] = after
    return before

"""What may be taken from whom: victims of one pool, the rules of reclaim, and the cheapest way to
make room for one pod on one node.

A workload gives its surplus above the minimum pod by pod; what is left then goes whole or not at
all. Queues give in two tiers: first those above their fair share, down to it (and never below their
quota); then, for a reclaimer within its quota, those above theirs, down to it. Between projects of
one department the projects are compared; otherwise the departments, and the victim's project must
be above its own share too. What cannot shrink goes whole even if its queue ends lower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.policy.queues import Queue, held_amounts, held_pool, sum_amounts
from extender.policy.session import Session
from extender.state.model import GPU, Amounts, PodView, Snapshot, WorkloadView


@dataclass(slots=True, eq=False)
class Victim:
    """A workload that may be evicted, with its pods that still run in the pool.

    `lost` is GPU-milli-seconds by pod; `n_elsewhere` counts its pods in other pools. Who is given
    something in this cycle `is_barred`: it keeps what it has, so that its minimum stays true.
    """

    workload: WorkloadView
    project: Queue
    pods: dict[str, PodView]
    lost: dict[str, int]
    n_elsewhere: int = 0
    is_barred: bool = False

    @property
    def n_surplus(self) -> int:
        """Pods that may go one by one."""
        return max(0, len(self.pods) + self.n_elsewhere - self.workload.min_member)


@dataclass(slots=True, eq=False)
class Unit:
    """Pods of one victim that go together. `is_core`: its last ones, all of them."""

    victim: Victim
    pods: list[PodView]
    is_core: bool
    lost: int

    @property
    def milli(self) -> int:
        """Milli-GPU that they hold."""
        return sum(pod.held_milli for pod in self.pods)

    @property
    def amounts(self) -> Amounts:
        """What their queue is charged for them."""
        return sum_amounts(held_amounts(pod, 0) for pod in self.pods)


#: Cheaper sorts first: tier, whether a queue ends below its floor, whether anything goes whole,
#: then GPU-milli-seconds lost, priorities, pods.
Cost = tuple[int, int, int, int, int, int]


@dataclass(slots=True)
class Claim:
    """Who takes, and from whom it may."""

    project: Queue
    is_project_in_quota: bool
    is_department_in_quota: bool
    only_siblings: bool

    def tier_of(self, project: Queue, taken: dict[Queue, int]) -> tuple[int, int] | None:
        """(tier, milli it may give in it) of a victim's project after `taken`; None: nothing."""
        has = project.allocated[GPU] - taken.get(project, 0)
        if project is self.project:
            return None
        if project.parent is self.project.parent:
            is_in_quota, top, has_top = self.is_project_in_quota, project, has
        elif self.only_siblings or project.parent is None:
            return None
        else:
            is_in_quota, top = self.is_department_in_quota, project.parent
            has_top = top.allocated[GPU] - taken.get(top, 0)
        above_share = has_top - max(top.share_to_keep[GPU], top.quota[GPU])
        above_quota = has_top - top.quota[GPU]
        if project is not top:
            above_share = min(above_share, has - project.share_to_keep[GPU])
            above_quota = min(
                above_quota, has - min(project.quota[GPU], project.share_to_keep[GPU])
            )
        if above_share > 0:
            return 0, above_share
        return (1, above_quota) if is_in_quota and above_quota > 0 else None

    def floor_of(self, project: Queue) -> int:
        """The least that a victim's project can be taken down to, in whichever tier."""
        if project.parent is self.project.parent:
            if self.is_project_in_quota:
                return project.quota[GPU]
            return max(project.share_to_keep[GPU], project.quota[GPU])
        if self.is_department_in_quota:
            return min(project.quota[GPU], project.share_to_keep[GPU])
        return project.share_to_keep[GPU]


@dataclass(slots=True)
class Draft:
    """Units chosen so far for one place, and what they cost; `queues` is what they take of whom."""

    claim: Claim
    units: dict[Victim, Unit] = field(default_factory=dict)
    queues: dict[Queue, int] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    cost: Cost = (0, 0, 0, 0, 0, 0)

    def take(self, victim: Victim, pod: PodView) -> bool:
        """Choose the pod, and whatever must go with it, if the rules allow it."""
        if pod.uid in self.freed:
            return True
        tier = self.claim.tier_of(victim.project, self.queues)
        if tier is None or victim.is_barred:
            return False
        unit = self.units.get(victim)
        n_chosen = len(unit.pods) if unit else 0
        is_core = n_chosen >= victim.n_surplus
        if is_core and victim.n_elsewhere:
            return False
        pods = [p for p in victim.pods.values() if p.uid not in self.freed] if is_core else [pod]
        lost = sum(victim.lost[p.uid] for p in pods)
        milli = sum(p.held_milli for p in pods)
        if unit is None:
            self.units[victim] = Unit(victim, pods, is_core, lost)
        else:
            unit.pods.extend(pods)
            unit.is_core = is_core
            unit.lost += lost
        self.freed.update(p.uid for p in pods)
        for queue in victim.project.chain:
            self.queues[queue] = self.queues.get(queue, 0) + milli
        worst, below, whole, seconds, priorities, count = self.cost
        self.cost = (
            max(worst, tier[0]),
            max(below, milli > tier[1]),
            max(whole, is_core),
            seconds + lost,
            priorities + victim.workload.priority * len(pods),
            count + len(pods),
        )
        return True


@dataclass(slots=True)
class Victims:
    """All victims of one pool.

    `on_node` lists their pods by node ix, the cheapest first; `largest_milli` is the most that one
    unit of a project can hold.
    """

    on_node: dict[int, list[tuple[Victim, PodView]]] = field(default_factory=dict)
    by_key: dict[str, Victim] = field(default_factory=dict)
    largest_milli: dict[Queue, int] = field(default_factory=dict)

    def most_milli(self, claim: Claim) -> int:
        """No more than this can be taken for the claim, however it is done."""
        total = 0
        for project, largest in self.largest_milli.items():
            if claim.tier_of(project, {}) is None:
                continue
            # The last unit is taken while anything is above the floor, so it may reach below it.
            total += project.allocated[GPU] - claim.floor_of(project) + largest - 1
        return total

    def remove(self, victim: Victim, pod: PodView, ix: int) -> None:
        """The pod has been told to leave."""
        del victim.pods[pod.uid]
        listed = self.on_node[ix]
        listed[:] = [entry for entry in listed if entry[1] is not pod]

    def restore(self, victim: Victim, pod: PodView, ix: int) -> None:
        """The pod stays after all."""
        victim.pods[pod.uid] = pod
        self.on_node[ix].append((victim, pod))
        self.on_node[ix].sort(key=lambda entry: _rank(*entry))


def find_victims(session: Session, pool: str) -> Victims:
    """Preemptible work of the pool that is bound whole, unprotected, and ran its minimum time."""
    snapshot, pools = session.snapshot, session.queues
    protected = session.settings.protected_pods
    found = Victims()
    for key in sorted(snapshot.workloads):
        workload = snapshot.workloads[key]
        project = pools[pool].leaf_of(workload)
        if not workload.is_preemptible or project is None:
            continue
        live = [p for p in workload.pods if p.node and not p.is_terminating]
        pods = [pod for pod in live if held_pool(snapshot, pod) == pool]
        if not pods or not _may_go(snapshot, project, live):
            continue
        if protected and any(pod.uid in protected for pod in live):
            continue
        lost = {pod.uid: _seconds(snapshot, pod) * pod.held_milli for pod in pods}
        by_uid = {pod.uid: pod for pod in pods}
        victim = Victim(workload, project, by_uid, lost, len(live) - len(pods))
        found.by_key[key] = victim
        victim.is_barred = session.is_served(key)
        sizes = sorted((pod.held_milli for pod in pods), reverse=True)
        largest = sum(sizes[: workload.min_member])
        found.largest_milli[project] = max(largest, found.largest_milli.get(project, 0))
        for pod in pods:
            ix = snapshot.nodes.cards.ix[pod.node]
            found.on_node.setdefault(ix, []).append((victim, pod))
    for listed in found.on_node.values():
        listed.sort(key=lambda entry: _rank(*entry))
    return found


def _may_go(snapshot: Snapshot, project: Queue, live: Sequence[PodView]) -> bool:
    if any(pod.state != "bound" for pod in live):
        return False
    protected_s = max(queue.reclaim_min_runtime_s for queue in project.chain)
    return protected_s == 0 or max(_seconds(snapshot, pod) for pod in live) >= protected_s


def _seconds(snapshot: Snapshot, pod: PodView) -> int:
    """How long the pod has run."""
    return max(0, snapshot.now_s - pod.started_at) if pod.started_at else 0


def _rank(victim: Victim, pod: PodView) -> tuple[bool, int, int, str]:
    """Surplus first, then the least lost, then the lowest priority."""
    lost = victim.lost[pod.uid] if victim.n_surplus else sum(victim.lost.values())
    return not victim.n_surplus, lost, victim.workload.priority, pod.key

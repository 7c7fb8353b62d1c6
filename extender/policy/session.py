"""The state of one cycle that its stages share: the simulation, the queues, who waits, the plan.

Stages are functions on a Session (`allocate`, `reclaim`). They place pods in the simulation, and
what they decide goes through `admit` and `evict`, so usage, places and plan never disagree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from extender.api.reasons import Reason, Refused
from extender.api.units import format_gpus
from extender.policy.chunks import Pending, read_pending
from extender.policy.explain import Shortages
from extender.policy.match import Matcher
from extender.policy.place import Moment, Places
from extender.policy.plan import Admission, Eviction, Placement, Plan, Settings
from extender.policy.queues import PoolQueues, Queue, build_queues, held_pool
from extender.policy.simulation import Simulation
from extender.state.model import Snapshot, WorkloadView

State = Literal["reserved", "nominated"]


@dataclass(slots=True)
class Session:
    """One cycle in the making. `pending` is everything that may still be placed."""

    snapshot: Snapshot
    settings: Settings
    sim: Simulation = field(init=False)
    queues: dict[str, PoolQueues] = field(init=False)
    places: Places = field(init=False)
    shortages: Shortages = field(init=False)
    pending: list[Pending] = field(default_factory=list)
    waits: dict[str, Refused] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    leaving_pools: set[str] = field(default_factory=set)
    _placed: dict[tuple[str, State], list[Placement]] = field(default_factory=dict)
    _evictions: list[Eviction] = field(default_factory=list)
    _giving: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        spread = frozenset(
            pool.name for pool in snapshot.pools.values() if pool.gpu_placement == "spread"
        )
        matcher = Matcher(snapshot.nodes)
        self.sim = Simulation(snapshot.nodes)
        self.places = Places(self.sim, matcher, spread)
        self.shortages = Shortages(self.sim, matcher)
        self.queues = build_queues(snapshot)
        self._let_leave()

    def read_pending(self) -> None:
        """Find what waits; what can't be tried at all gets its reason here."""
        for key in sorted(self.snapshot.workloads):
            found = read_pending(self.snapshot, self.queues, self.snapshot.workloads[key])
            if isinstance(found, Refused):
                self.waits[key] = found
            elif found is not None and key not in self.waits:
                self.pending.append(found)

    def pools_in_order(self) -> list[str]:
        """Node pools that pending work names: those first that are nobody's second choice."""
        latest: dict[str, int] = {}
        for pending in self.pending:
            for position, pool in enumerate(pending.pools):
                latest[pool] = max(position, latest.get(pool, 0))
        return sorted(latest, key=lambda pool: (latest[pool], pool))

    def project_of(self, workload: WorkloadView, pool: str) -> Queue:
        """The workload's project in the pool; both are known to exist."""
        return self.queues[pool].projects[workload.project]

    def check_room(
        self, project: Queue, workload: WorkloadView, milli: int, moment: Moment
    ) -> Refused | None:
        """Why the project may not hold `milli` more, or None when it may.

        What may start now has to leave room for pods that are on their way out and still hold.
        """
        if milli == 0:
            return None
        for queue in project.chain:
            leaving = queue.leaving_milli if moment == "now" else 0
            has = queue.allocated_milli + leaving
            if has + milli > queue.ceiling_milli:
                return _refuse(Reason.OVER_LIMIT, workload, (queue, has, queue.ceiling_milli))
            if not workload.is_preemptible:
                leaving = queue.leaving_np_milli if moment == "now" else 0
                has = queue.allocated_np_milli + leaving
                if has + milli > queue.quota_milli:
                    return _refuse(
                        Reason.NON_PREEMPTIBLE_OVER_QUOTA, workload, (queue, has, queue.quota_milli)
                    )
        return None

    def admit(
        self, pending: Pending, placements: Sequence[Placement], pool: str, state: State
    ) -> Pending | None:
        """Decide it: the simulation holds the places. Returns what still waits of the workload."""
        workload = pending.workload
        milli = sum(placement.milli for placement in placements)
        project = self.project_of(workload, pool)
        self.sim.charge(project, milli, 0 if workload.is_preemptible else milli)
        self.confirm(workload, placements, state)
        return pending.advance(placements, pool)

    def confirm(
        self, workload: WorkloadView, placements: Iterable[Placement], state: State
    ) -> None:
        """Put into the plan what the simulation and the queues already count."""
        self._placed.setdefault((workload.key, state), []).extend(placements)

    def is_served(self, key: str) -> bool:
        """Whether the workload is given anything in this cycle."""
        return (key, "reserved") in self._placed or (key, "nominated") in self._placed

    def is_giving(self, key: str) -> bool:
        """Whether pods of the workload are evicted in this cycle."""
        return key in self._giving

    def evict(self, eviction: Eviction) -> None:
        """Put an eviction into the plan."""
        self._evictions.append(eviction)
        self._giving.add(eviction.workload)

    def plan(self) -> Plan:
        """What was decided. Shares show the snapshot's own usage."""
        plan = Plan(evictions=self._evictions, drops=self.drops)
        for (key, state), placements in self._placed.items():
            workload = self.snapshot.workloads[key]
            plan.admissions.append(Admission(workload, tuple(placements), state))
        plan.waits = dict(sorted(self.waits.items()))
        for pool, queues in self.queues.items():
            for project in queues.projects.values():
                plan.project_shares[project.name, pool] = project.as_share()
            for department in queues.departments.values():
                plan.department_shares[department.name, pool] = department.as_share()
        return plan

    def _let_leave(self) -> None:
        """Later, pods that are being deleted are gone."""
        nodes = self.snapshot.nodes
        for workload in self.snapshot.workloads.values():
            for pod in workload.pods:
                ix = nodes.ix_of(pod.node) if pod.is_terminating and pod.node else None
                if ix is not None:
                    self.sim.later.give_back(ix, pod.demand, pod.cards)
                    self.leaving_pools.add(held_pool(self.snapshot, pod))


def _refuse(reason: Reason, workload: WorkloadView, figures: tuple[Queue, int, int]) -> Refused:
    queue, has, bound = figures
    word = "limit" if reason is Reason.OVER_LIMIT else "quota for non-preemptible work"
    return Refused(
        reason,
        f"{workload.key}: {queue.name} has {format_gpus(has)} GPUs"
        f" of its {word} of {format_gpus(bound)}",
    )

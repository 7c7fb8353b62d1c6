"""The state of one cycle that its stages share: simulation, queues, pending work and plan.

Stages are functions on a Session (`allocate`, `reclaim`). They place pods in the simulation and
record decisions with `admit` and in `draft`, so usage, placements and plan never disagree.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.policy.placement.capacity_bound import CapacityBound
from extender.policy.placement.earliest_start import Future
from extender.policy.placement.explain import Shortages
from extender.policy.placement.fragmentation import Fragmentation
from extender.policy.placement.node_filter import NodeFilter
from extender.policy.placement.placer import Placer
from extender.policy.placement.pod_affinity import PodAffinity
from extender.policy.placement.reservations import Reservations
from extender.policy.placement.simulation import Simulation
from extender.policy.placement.topology import TopologyDomains
from extender.policy.plan import HeldBack, Placement, Plan, Settings, Stage, State
from extender.policy.plan_draft import PlanDraft
from extender.policy.queues.queue import Queue
from extender.policy.queues.room import is_ever_allowed
from extender.policy.queues.tree import PoolQueues, build_queues, held_pool, tally_of
from extender.policy.workloads.backlog import Backlog
from extender.policy.workloads.disruption_budgets import Budgets, find_overdue, hold_key, hold_s
from extender.policy.workloads.first_kinds import FirstKinds
from extender.policy.workloads.job_order import Turns
from extender.policy.workloads.pending import Pending, PendingReader, why_too_few
from extender.state.model import Amounts, PodView, WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.tally import sum_amounts


@dataclass(slots=True)
class Session:
    """The state of one cycle.

    `has_preempted`: stage `preempt` is over. `may_be_taken_back`: work starts that the next cycle
    could evict or move, since it lifts its queue above its share, is a fraction of a GPU, or its
    node pool spreads it.
    `leaving_pools` are node pools in which terminating pods hold cards.
    """

    snapshot: Snapshot
    settings: Settings
    sim: Simulation = field(init=False)
    queues: dict[str, PoolQueues] = field(init=False)
    places: Placer = field(init=False)
    shortages: Shortages = field(init=False)
    capacity_bound: CapacityBound = field(init=False)
    budgets: Budgets = field(init=False)
    reservations: Reservations = field(init=False)
    firsts: FirstKinds = field(init=False)
    backlog: Backlog = field(default_factory=Backlog)
    has_preempted: bool = False
    may_be_taken_back: bool = False
    draft: PlanDraft = field(default_factory=PlanDraft)
    leaving_pools: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        node_filter = NodeFilter(snapshot.nodes, snapshot.now_s, _kept_for_shares(snapshot))
        affinity = PodAffinity(snapshot)
        self.sim = Simulation(snapshot.nodes, affinity or None)
        topologies = TopologyDomains(snapshot.topologies, snapshot.nodes)
        fragmentation = Fragmentation(snapshot, self.sim)
        self.places = Placer(
            self.sim, node_filter, topologies, snapshot.pools, affinity, fragmentation
        )
        self.capacity_bound = CapacityBound(snapshot.nodes, node_filter, topologies)
        self.shortages = Shortages(self.places, self.capacity_bound)
        self.queues = build_queues(snapshot)
        future = Future(snapshot, self.sim, self.places, self.queues, self.draft)
        self.firsts = FirstKinds(snapshot, self.queues)
        self.reservations = Reservations(future, self.settings, self.firsts)
        overdue = find_overdue(snapshot, self.settings.held_since)
        self.budgets = Budgets(dict(snapshot.budgets), self.settings.protected_pods, overdue)
        self._free_terminating()

    def read_pending(self) -> None:
        """Find the pending workloads; records why some cannot be tried at all."""
        reader = PendingReader(self.snapshot, self.queues)
        for key in sorted(tally_of(self.snapshot).waiting):
            found = reader.read(self.snapshot.workloads[key])
            if isinstance(found, Refused):
                self.draft.waits[key] = found
            elif found is not None and key not in self.draft.waits:
                self.backlog.pending.append(found)

    def take_turns(self, pool: str, waiting: Iterable[Pending]) -> Turns:
        """The turns of the pending workloads of a pool, in its job order."""
        return Turns(
            ((self.queue_of(pending.workload, pool), pending) for pending in waiting),
            self.firsts,
            self.snapshot.now_s,
            overdue=self.settings.first,
        )

    def note_turns(self, waiting: Iterable[Pending]) -> None:
        """Record the turns of these workloads, unless they had one before in this cycle."""
        for pending in waiting:
            self.draft.turns.setdefault(pending.workload.key)

    def refused_alike(
        self, turns: Turns, pending: Pending, refused: Refused, pool: str
    ) -> Iterator[tuple[Pending, Refused]]:
        """Remove the workloads next in line that are identical to the refused one; yields their
        reasons.

        Stops where the next one may fit after all: with pod affinity, or while cards are reserved.
        """
        key = pending.workload.key
        if self.places.pod_affinity or not refused.detail.startswith(f"{key}: "):
            return
        detail, alike = refused.detail.removeprefix(key), turns.alike(pending)
        while self.reservations.in_pool(pool) is None and (other := next(alike, None)):
            yield other, Refused(refused.reason, other.workload.key + detail)

    def why_barred(self, pending: Pending, pool: str) -> Refused | None:
        """Why the workload may start nowhere in the pool while a reservation stands; None if it
        may."""
        kept = self.reservations.in_pool(pool)
        if kept is None or not self.reservations.bars(pending, pool):
            return None
        why = f"its project's share has no room for it beside {kept.key}, which waits ahead of it"
        return Refused(Reason.WAITING_FOR_TURN, f"{pending.workload.key}: {why}")

    def why_kept(self, pending: Pending, pool: str) -> Refused | None:
        """Why the workload waits while the pool has a reservation for another one."""
        if (kept := self.reservations.in_pool(pool)) is None:
            return None
        first = self.snapshot.workloads[kept.key]
        # Workloads of other projects are not named to the user.
        is_own = first.project == pending.workload.project
        named = first.key if is_own else f"work of project {first.project}"
        return Refused(
            Reason.WAITING_FOR_TURN,
            f"{pending.workload.key}: its place is kept for {named}, which is blocked",
        )

    def is_spent(self) -> bool:
        """Whether the cycle's time is up; checked between workloads, never within one."""
        return self.settings.is_spent()

    def may_evict_later(self, stage: Stage, pool: str) -> bool:
        """Whether this stage comes after `allocate` and evicts pods in the pool."""
        stages = self.settings.stages
        if "allocate" not in stages or stage not in stages[stages.index("allocate") :]:
            return False
        return self.snapshot.pools[pool].has_preemption

    def queue_of(self, workload: WorkloadView, pool: str) -> Queue:
        """The workload's queue in the pool; both must exist."""
        leaf = self.queues[pool].leaf_of(workload)
        assert leaf is not None
        return leaf

    def could_ever_start(self, pending: Pending, pool: str) -> bool:
        """Whether the next chunk could start some day: limits and quotas allow it, and each of its
        pods fits some ready node, if empty. A gang may wait for nodes that are still to come."""
        fits = self.capacity_bound.allows_each(pending.chunk, pool)
        return fits and self.is_ever_allowed(pending, pool)

    def holds_up_queue(self, pending: Pending, pool: str) -> bool:
        """Whether a workload that does not fit holds up its queue: in strict order, if it may use
        some node and limits and quotas could ever allow it."""
        if self.snapshot.pools[pool].job_order != "strict-fifo":
            return False
        candidates = self.places.node_filter.candidates
        has_nodes = all(candidates(pool, shape.constraints) for shape in pending.shapes)
        return has_nodes and self.is_ever_allowed(pending, pool)

    def is_ever_allowed(self, pending: Pending, pool: str) -> bool:
        """Whether limits, and quotas for non-preemptible work, are as large as the next chunk, or
        as one that may be tried in its place."""
        leaf, is_np = self.queue_of(pending.workload, pool), not pending.workload.is_preemptible
        return is_ever_allowed(leaf, pending.need(), is_np=is_np) or any(
            is_ever_allowed(leaf, pending.need_of(chunk), is_np=is_np)
            for chunk in pending.other_chunks()
        )

    def admit(
        self,
        pending: Pending,
        placements: Sequence[Placement],
        pool: str,
        state: State,
        amounts: Amounts | None = None,
    ) -> Pending | None:
        """Put placements that the simulation holds into the plan; returns what is still pending.

        `amounts` is what the placements hold, if the caller knows it.
        """
        workload = pending.workload
        assert placements, f"{workload.key}: no placements to admit"
        is_np = not workload.is_preemptible
        held = placed_amounts(placements) if amounts is None else amounts
        leaf = self.queue_of(workload, pool)
        self.sim.charge(leaf, held, is_np=is_np)
        self.firsts.start(workload, leaf, held)
        self.confirm(workload, placements, state)
        left = pending.advance(placements, pool)
        if left is None and (pending.waiting or pending.spare):
            gated = [*pending.waiting, *pending.spare]
            self.draft.incomplete[workload.key] = why_too_few(pending, gated)
        return left

    def confirm(
        self, workload: WorkloadView, placements: Iterable[Placement], state: State
    ) -> None:
        """Put placements into the plan that the simulation and the queues already count."""
        self.draft.place(workload.key, placements, state)
        if state == "reserved" and self.places.pod_affinity:
            self.places.pod_affinity.start(placement.pod for placement in placements)

    def hold_back(
        self, pods: Iterable[PodView], workloads: Iterable[WorkloadView], project: str = ""
    ) -> str:
        """Record that budgets protect these victims; returns a sentence about the first of them.

        The pod is named only if it is of `project`, its budget always: that is where to ask.
        """
        sentence, now_s = "", self.snapshot.now_s
        for pod, workload in zip(pods, workloads, strict=True):
            since = self.settings.held_since.get(hold_key(pod.uid, pod.budgets), now_s)
            until = since + hold_s(self.snapshot, pod, workload.project)
            self.draft.held_back[pod.uid] = HeldBack(pod.uid, pod.budgets, until)
            end = max(0, until - now_s)
            whose = pod.key if workload.project == project else f"a pod of {_title(workload)}"
            sentence = sentence or f"{whose}: {self.budgets.name_of(pod)}, for {end} s at most"
        return sentence

    def plan(self) -> Plan:
        """The plan so far. Shares show the snapshot's own usage."""
        plan = self.draft.plan(self.snapshot.workloads)
        for pool, queues in self.queues.items():
            for queue in queues.by_name.values():
                plan.shares[queue.name, pool] = queue.as_share()
        return plan

    def _free_terminating(self) -> None:
        """Free, in the later table, what terminating pods and rows without a pod hold.

        A pod that did not end in time keeps it: nothing is nominated where nothing comes free.
        """
        nodes = self.snapshot.nodes
        for name, cards in self.snapshot.orphans:
            ix = nodes.ix_of(name)
            if ix is not None:
                self.sim.later.cards.give_back(ix, cards)
                self.leaving_pools.add(nodes.pool[ix])
        for key in sorted(tally_of(self.snapshot).leaving):
            for pod in self.snapshot.workloads[key].pods:
                ix = nodes.ix_of(pod.node)
                if ix is not None and pod.is_leaving_at(self.snapshot.now_s):
                    self.sim.later.give_back(ix, pod.demand, pod.cards)
                    self.leaving_pools.add(held_pool(self.snapshot, pod))


def placed_amounts(placements: Sequence[Placement]) -> Amounts:
    """What the queue is charged for all of the placements."""
    if len(placements) == 1:
        return placements[0].amounts
    return sum_amounts([placement.amounts for placement in placements])


def _title(workload: WorkloadView) -> str:
    return f"project {workload.project}" if workload.project else "no project"


def _kept_for_shares(snapshot: Snapshot) -> frozenset[int]:
    """Nodes (by ix) on which a GPU share by a resource claim is nominated."""
    workloads = (snapshot.workloads[key] for key in tally_of(snapshot).nominated)
    promised = (
        pod
        for workload in workloads
        for pod in workload.pods
        if pod.state == "nominated" and pod.constraints.delivery == "share"
    )
    found = (snapshot.nodes.ix_of(pod.node) for pod in promised)
    return frozenset(ix for ix in found if ix is not None)

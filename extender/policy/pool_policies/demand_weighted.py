"""Node pools of policy `demand-weighted`: shares of GPUs in proportion to demand times weight.

Departments, projects, users and finally single workloads get shares, level by level. The demand of
a workload is its running pods, and its waiting pods that could ever be placed; that of a queue is
the sum, up to its limit. Every queue gets at least its non-preemptible demand and its smallest task
(a pod or a gang), and at most its demand. Between these bounds, shares are in proportion to demand
times weight, in whole GPUs by largest remainder, ties to the older queue. If the smallest tasks do
not all fit, smaller ones come first, then older queues. Inside a project, the workload that has run
longest comes first, then priority and age decide. The part of a share that no further task of the
workload fits goes to the others.

A workload starts only tasks within its share, even if GPUs stay idle. Pods above the share are
evicted, even if nothing is pending; in a project that has used its monthly budget, only while the
whole project is above its share. Pods on a cordoned node keep running, since no other pod could use
their GPUs, which are shared in addition to the ready nodes. Non-preemptible workloads need no
quota. If a quota is stated it bounds them, and they are served first. Workloads without GPUs are
not shared: the oldest comes first, and one that does not fit blocks no other.

The rules are those of Determined's documentation, with the one task for every experiment of its
fair-share scheduler (`master/internal/rm/agentrm/fair_share.go`), which weighs by weight alone.

A workload that may use several pools requests its GPUs in each, until one of them has placed it. So
all such pools start what they can before any eviction, and such a victim keeps running above its
share if no other workload uses its cards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from extender.api.reasons import Reason, Refused
from extender.api.units import count_gpus, format_gpus
from extender.policy.actions.chunk_grant import grant
from extender.policy.placement.simulation import Moment
from extender.policy.plan import Eviction
from extender.policy.pool_policies.demand_shares import divide_by_demand
from extender.policy.pool_policies.queue_demands import surplus_key
from extender.policy.preemption.candidate_table import find_candidates
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING, SURPLUS_ONLY
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.statement import EvictionUnit, Statement
from extender.policy.queues.fairshare import children_first, demands, set_dues, sum_requests
from extender.policy.queues.min_runtime import own_reclaim_minimum_s
from extender.policy.queues.queue import RESOURCES, Queue, frozen
from extender.policy.queues.tree import PoolQueues
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import CPU, GPU, MEMORY, Amounts


def set_demand_shares(session: Session, queues: PoolQueues) -> None:
    """Set the shares of every queue of the pool; CPU and memory are not shared here."""
    all_queues = children_first(queues.roots)
    sum_requests(all_queues)
    for resource in (CPU, MEMORY):
        wants = demands(all_queues, resource, is_leaving_counted=False)
        for queue in all_queues:
            queue.share[resource] = wants[queue]
    divide_again(session, queues)


def divide_again(session: Session, queues: PoolQueues) -> None:
    """Divide the pool's GPUs again by the current allocations and pending workloads."""
    all_queues = children_first(queues.roots)
    divide_by_demand(session, queues)
    for queue in all_queues:
        queue.share_to_take = queue.share_to_keep = queue.exact_share = frozen(queue.share)
    set_dues(queues, all_queues)


def start_by_demand(
    session: Session, pool: str, waiting: Iterable[Pending], moment: Moment
) -> list[Pending]:
    """Start workloads that fit and stay within the shares, in scheduling order; returns those with
    pods left."""
    with_gpus: list[Pending] = []
    without: list[Pending] = []
    for pending in waiting:
        (with_gpus if pending.need()[GPU] else without).append(pending)
    turns = session.take_turns(pool, with_gpus)
    left = []
    while (turn := turns.pop()) is not None:
        session.note_turns(turn[1:])
        given = _try(session, turn[1], pool, moment)
        if isinstance(given, Refused):
            left.append(turn[1])
            turns.pass_over(holds_up=False)
        else:
            turns.settle(given)
    for pending in sorted(without, key=lambda each: (each.workload.created_at, each.workload.key)):
        rest: Pending | None = pending
        while rest is not None:
            given = _try(session, rest, pool, moment)
            if isinstance(given, Refused):
                left.append(rest)
                break
            rest = given
    return left


def share_by_demand(session: Session, pool: str, waiting: list[Pending]) -> list[Pending]:
    """Evict pods above the shares and place workloads below; returns those that do not fit."""
    if "reclaim" in session.settings.stages and session.snapshot.pools[pool].has_preemption:
        surplus = _Surplus(session, pool)
        surplus.evict()
        session.places.forget_failures(pool)
        # A workload that loses pods starts none in the same cycle.
        losing = surplus.leaves()
        below = [p for p in waiting if session.queue_of(p.workload, pool) not in losing]
        others = [p for p in waiting if session.queue_of(p.workload, pool) in losing]
        before = [(pending, set(pending.nodes)) for pending in below]
        left = start_by_demand(session, pool, below, "later") + others
        surplus.keep_unused_victims()
        surplus.plan(before)
        return left
    if pool in session.leaving_pools:
        return start_by_demand(session, pool, waiting, "later")
    return waiting


def _try(session: Session, pending: Pending, pool: str, moment: Moment) -> Pending | Refused | None:
    """Start the next chunk of the workload; as `grant`."""
    given = grant(session, pending, pool, moment, _bound)
    if isinstance(given, Refused):
        session.draft.waits.setdefault(pending.workload.key, given)
    elif given is None:
        session.draft.waits.pop(pending.workload.key, None)
    return given


def _bound(leaf: Queue, pending: Pending, amounts: Amounts) -> Refused | None:
    """Why `amounts` more would exceed a share; None if they would not."""
    need = amounts[GPU]
    for queue in leaf.chain if need else ():
        has, share = queue.allocated[GPU], queue.share[GPU]
        if has + need > share:
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{pending.workload.key}: needs {count_gpus(need)},"
                f" {'it' if queue is leaf else queue.name} has {format_gpus(has)} of its share of"
                f" {format_gpus(share)}",
            )
    return None


def _is_surplus(leaf: Queue) -> bool:
    """Whether the workload is above its share, and its project too if its budget is used."""
    return all(
        queue.allocated[GPU] > queue.share[GPU]
        for queue in ((leaf, leaf.project) if leaf.project.is_spent else (leaf,))
    )


@dataclass(slots=True)
class _Surplus:
    """Evicts pods above the shares of a pool's workloads, in the simulation."""

    session: Session
    pool: str
    candidates: Candidates = field(init=False)
    statement: Statement = field(init=False)

    def __post_init__(self) -> None:
        self.candidates = find_candidates(self.session, self.pool)
        self.statement = Statement(self.session, self.pool, self.candidates, [])

    def evict(self) -> None:
        """Evict as few pods above the shares as possible, in each workload those that ran least."""
        candidates, has_victims = self.candidates, self.session.draft.has_victims
        protection = protected_by(self.session, candidates, own_reclaim_minimum_s)
        for w in sorted(range(len(candidates.workloads)), key=candidates.priority.__getitem__):
            if _is_surplus(candidates.leaves[w]) and not has_victims(candidates.workloads[w].key):
                self._evict_surplus_of(w, protection)

    def leaves(self) -> set[Queue]:
        """The queues of the victims."""
        return {self.candidates.leaves[unit.w] for unit in self.statement.units.values()}

    def keep_unused_victims(self) -> None:
        """Keep victims that may use several pools if no other workload was placed on their cards.

        Once evicted they would be pending in all of these pools, and change the shares there.
        """
        candidates, statement = self.candidates, self.statement
        affinity = self.session.places.pod_affinity
        for unit in reversed(list(statement.units.values())):
            if len(candidates.workloads[unit.w].pools) < 2:
                continue
            mark = statement.checkpoint()
            statement.keep(unit)
            places = [
                (candidates.pods[p], statement.ix_of(candidates.pods[p].node)) for p in unit.pods
            ]
            chain = candidates.leaves[unit.w].chain
            if (
                not candidates.is_legal(unit.w)
                or any(statement.is_over(ix) for _, ix in places)
                or any(queue.allocated[r] > queue.limit[r] for queue in chain for r in RESOURCES)
                or not all(affinity.is_apart(pod, ix) for pod, ix in places)
            ):
                statement.rollback(mark)

    def plan(self, served: Sequence[tuple[Pending, set[str]]]) -> None:
        """Add the evictions to the plan, each with a preemptor placed on its node, if there is one.

        `served` are pending workloads, each with the uids of the pods that were placed before.
        """
        preemptors: dict[str, str] = {}
        for pending, had in served:
            for uid, node in pending.nodes.items():
                if uid not in had:
                    preemptors.setdefault(node, pending.workload.key)
        for unit in self.statement.units.values():
            pods = [self.candidates.pods[p] for p in unit.pods]
            workload, leaf = self.candidates.workloads[unit.w], self.candidates.leaves[unit.w]
            preemptor = next((preemptors[p.node] for p in pods if p.node in preemptors), "")
            held, share = count_gpus(leaf.held[GPU]), format_gpus(leaf.share[GPU])
            note = f"{leaf.name} holds {held} of its share of {share}"
            for pod in pods:
                self.session.draft.evict(
                    Eviction(pod, workload.key, Reason.RECLAIMED, preemptor, note)
                )

    def _evict_surplus_of(self, w: int, protection: bytearray) -> None:
        """Evict unit by unit until the workload is within its share, then keep needless victims."""
        statement, candidates, leaf = self.statement, self.candidates, self.candidates.leaves[w]
        affinity = self.session.places.pod_affinity
        unsatisfied, evicted = affinity.unsatisfied(), list[EvictionUnit]()
        while _is_surplus(leaf):
            unit = self._next_unit(w, protection)
            if unit is None:
                break
            mark = statement.checkpoint()
            statement.evict(unit)
            if affinity.leaves_unsatisfied(unsatisfied):
                # A pod placed in this cycle needs these pods as affinity peers.
                statement.rollback(mark)
                break
            evicted.append(unit)
        for unit in reversed(evicted):
            mark = statement.checkpoint()
            statement.keep(unit)
            if _is_surplus(leaf) or not candidates.is_legal(w):
                statement.rollback(mark)

    def _next_unit(self, w: int, protection: bytearray) -> EvictionUnit | None:
        """The smallest unit with GPUs that may be evicted; ties go to the pod with the lowest
        order, then the least run time.

        Pods that budgets protect are recorded. A pod on a cordoned node is evicted only with its
        gang.
        """
        candidates, nodes = self.candidates, self.session.snapshot.nodes
        with_gpus = [
            p
            for p in candidates.members[w]
            if candidates.amounts[3 * p + GPU] and nodes.takes_pods(candidates.pods[p].node)
        ]
        leaving = set(self.statement.leaving())
        ruled_out = [p for p in candidates.guarded if p in with_gpus and p not in leaving]
        self._record_held_back(w, [p for p in ruled_out if not candidates.is_here[p]])
        with_gpus = [p for p in with_gpus if candidates.is_here[p]]
        with_gpus.sort(key=lambda p: surplus_key(candidates.pods[p]))
        units = [unit for p in with_gpus if (unit := candidates.unit_of(p)) is not None]
        pods = min(units, key=len, default=())
        is_whole = len(pods) == candidates.n_live[w]
        least = SURPLUS_ONLY if is_whole else NOTHING
        if not pods or any(protection[p] >= least for p in pods):
            return None
        self._record_held_back(w, pods)
        if not candidates.may_evict(pods):
            return None
        return EvictionUnit(pods, w, 0, is_below=False, is_whole=is_whole, lost=0)

    def _record_held_back(self, w: int, pods: Sequence[int]) -> None:
        """Record the pods as held back if budgets do not allow their eviction."""
        candidates = self.candidates
        if not candidates.may_evict(pods):
            held = [candidates.pods[p] for p in pods]
            self.session.hold_back(held, [candidates.workloads[w]] * len(held))

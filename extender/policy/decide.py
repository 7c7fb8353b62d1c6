"""Decides one cycle: one snapshot in, one plan out."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from extender.api.reasons import Reason, Refused
from extender.policy.actions.allocate import allocate, allocate_deferred
from extender.policy.actions.consolidate import consolidate
from extender.policy.actions.empty_nodes import empty_nodes
from extender.policy.actions.nominations import resolve_nominations
from extender.policy.actions.preempt import preempt
from extender.policy.actions.reclaim import reclaim
from extender.policy.actions.stale_gangs import evict_stale_gangs
from extender.policy.actions.unplaceable import set_aside_unplaceable
from extender.policy.follow_up import Rounds
from extender.policy.plan import Plan, Settings, Stage
from extender.policy.pool_policies.demand_weighted import (
    divide_again,
    set_demand_shares,
    share_by_demand,
    start_by_demand,
)
from extender.policy.pool_policies.fair_shares import set_fair_shares
from extender.policy.pool_policies.priority import serve_by_priority
from extender.policy.preemption.solver import Preemption
from extender.policy.queues.tree import tally_of
from extender.policy.session import Session
from extender.policy.workloads.floors import keep_floors
from extender.state.snapshot import Snapshot


def decide(snapshot: Snapshot, settings: Settings | None = None) -> Plan:
    """The plan for one cycle: a pure function; the order of the snapshot's lists does not matter.

    The simulation changes the snapshot's node table, so use a snapshot once. Costs about one pass
    over nodes, queues and work that is not at rest, a search for each distinct shape of pending
    pods, and the size of the plan.
    """
    with paused_collector():
        return _decide(snapshot, settings or Settings())


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pauses garbage collection.

    The objects of a decision live until it ends, so a collection visits all of them and frees none:
    that takes a tenth of a cycle at 500 nodes, a fifth at 5,000.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decide(snapshot: Snapshot, settings: Settings) -> Plan:
    snapshot, kept = keep_floors(snapshot)
    plan = _decide_rounds(snapshot, settings)
    _explain_rest(plan, snapshot, settings.stages)
    plan.kept = kept
    return plan


def _explain_rest(plan: Plan, snapshot: Snapshot, stages: Sequence[Stage]) -> None:
    """Add a reason for each workload with pods that the plan does not place and that no stage
    considered, such as the surplus of a workload that loses pods."""
    why = "it has its turn in the next cycle"
    if "allocate" not in stages:
        ran = f"only {' and '.join(stages)} ran" if stages else "no stage ran"
        why = f"{ran}, and free places are given by allocate"
    placed = plan.placed_uids()
    for key in sorted(tally_of(snapshot).waiting - plan.waits.keys()):
        pods = snapshot.workloads[key].pods
        if any(p.state == "gated" and not p.is_terminating and p.uid not in placed for p in pods):
            plan.waits[key] = Refused(Reason.WAITING_FOR_TURN, f"{key}: {why}")


def _decide_rounds(snapshot: Snapshot, settings: Settings) -> Plan:
    if not tally_of(snapshot).waiting:
        return _decide_round(snapshot, settings).plan()
    rounds = Rounds(snapshot, snapshot.nodes.copy(), settings.moves_reclaimed)
    session = _decide_round(snapshot, settings)
    may_be_taken_back = session.may_be_taken_back and bool(session.backlog.pending)
    rounds.add(session.plan(), session.budgets, may_be_taken_back=may_be_taken_back)
    while rounds.is_next() and not session.is_spent():
        session = _decide_round(rounds.snapshot_after(), settings, is_follow_up=True)
        rounds.add(session.plan(), session.budgets)
    return rounds.plan(session)


def _decide_round(snapshot: Snapshot, settings: Settings, *, is_follow_up: bool = False) -> Session:
    """Run all stages once. A follow-up leaves out work with pod affinity, whose nodes are known
    only when the other pods run."""
    session = Session(snapshot, settings)
    preemption = Preemption(session)
    resolve_nominations(session)
    session.read_pending()
    set_aside_unplaceable(session)
    session.reservations.await_nodes(session.backlog.pending)
    set_fair_shares(session)
    for pool, queues in session.queues.items():
        if snapshot.pools[pool].policy == "demand-weighted":
            set_demand_shares(session, queues)
    if is_follow_up and session.places.pod_affinity:
        # Only after shares are divided, since this work counts in them.
        concerns = session.places.pod_affinity.concerns
        session.backlog.leave_out(lambda pending: concerns(pending.waiting))
    for stage in session.settings.stages:
        if stage in _STAGES and not (is_follow_up and stage in _ONCE):
            session.settings.enter(stage)
            _STAGES[stage](preemption)
    return session


def _allocate_by_policy(preemption: Preemption) -> None:
    """Serve the fair-share pools, then all other pools by their policies."""
    session = preemption.session
    preemption.count_leaving()
    allocate(session)
    policies = {name: view.policy for name, view in session.snapshot.pools.items()}
    # Demand-weighted queues return what is above their shares even if no workload is pending.
    weighted = sorted(name for name, policy in policies.items() if policy == "demand-weighted")
    pools = list(dict.fromkeys([*session.backlog.pools(), *weighted]))
    for pool in pools:
        if policies[pool] == "priority":
            here = session.backlog.in_pool(pool)
            session.backlog.settle(here, serve_by_priority(preemption, pool, here))
        elif policies[pool] == "demand-weighted":
            here = session.backlog.in_pool(pool)
            session.backlog.settle(here, start_by_demand(session, pool, here, "now"))
    if len(policies) > 1:
        for pool in weighted:
            divide_again(session, session.queues[pool])
    for pool in pools:
        if policies[pool] == "demand-weighted":
            here = session.backlog.in_pool(pool)
            session.backlog.settle(here, share_by_demand(session, pool, here))
    preemption.review()


def _reclaim_then_allocate(preemption: Preemption) -> None:
    """Reclaim, then serve the workloads that were deferred."""
    session = preemption.session
    reclaim(preemption)
    if session.backlog.deferred:
        session.settings.enter("allocate")
        allocate_deferred(preemption)
        if "consolidate" in session.settings.stages:
            session.settings.enter("consolidate")
            consolidate(preemption)


def _preempt_then_allocate(preemption: Preemption) -> None:
    """Preempt, then serve the workloads that yielded."""
    session = preemption.session
    preempt(preemption)
    session.has_preempted = True
    if session.backlog.yielding:
        session.settings.enter("allocate")
        allocate_deferred(preemption)


_STAGES: Mapping[Stage, Callable[[Preemption], None]] = {
    "allocate": _allocate_by_policy,
    "consolidate": consolidate,
    "reclaim": _reclaim_then_allocate,
    "preempt": _preempt_then_allocate,
    "stale-gangs": lambda preemption: evict_stale_gangs(preemption.session),
    "empty-nodes": empty_nodes,
}
#: Stages that no follow-up repeats: a node pool empties one node at a time.
_ONCE: Final[frozenset[Stage]] = frozenset({"empty-nodes"})

"""Builds the candidates of a node pool, once a cycle.

Candidates are the pods of preemptible workloads whose placed pods are all bound and none of which
is being moved. A workload that an earlier cycle nominated and of which no pod runs is a candidate
as a whole: it loses no work, so its nomination is given up before running work is evicted.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final

from msgspec.structs import replace

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.lost_work import seconds_lost
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.queues.tree import PoolQueues, tally_of
from extender.policy.session import Session
from extender.policy.workloads.gangs import has_topology
from extender.state.model import PodState, PodView, WorkloadView
from extender.state.tally import held_amounts

#: Ages are counted down from here, so that the older workload has the larger figure.
_EPOCH_END: Final = (1 << 33) - 1


def find_candidates(session: Session, pool: str) -> Candidates:
    """All pods of the pool that may be evicted or moved; costs one pass over all workloads."""
    snapshot = session.snapshot
    layout = _Layout(session, pool)
    nominated = _nominated(session)
    workloads = snapshot.workloads.values()
    for workload in sorted(workloads, key=lambda each: (each.created_at, each.key), reverse=True):
        if workload.is_preemptible:
            as_nominated = nominated.get(workload.key)
            layout.add(as_nominated or workload, "nominated" if as_nominated else "bound")
    layout.finish(session.draft.served() - nominated.keys())
    return layout.candidates


def _nominated(session: Session) -> dict[str, WorkloadView]:
    """By key, the workloads of which nothing runs and this cycle places only what an earlier one
    nominated: with these pods alone, as if all of them were needed and started now. No disruption
    budget protects them."""
    found, now_s = {}, session.snapshot.now_s
    for key in tally_of(session.snapshot).nominated - {*session.draft.drops}:
        workload = session.snapshot.workloads[key]
        pods = [pod for pod in workload.pods if pod.node]
        placed = (*pods, *(placement.pod for placement in session.draft.placed_of(key)))
        if all(pod.state == "nominated" and not pod.is_terminating for pod in placed):
            change: dict[str, Any] = {"budgets": (), "is_controlled": False, "started_at": now_s}
            views = tuple(replace(pod, **change) for pod in pods)
            found[key] = replace(workload, pods=views, min_member=len(pods), tree=None)
    return found


class _Layout:
    """Builds the candidates of the pool: first `add` each workload, from the youngest on, then
    `finish`."""

    def __init__(self, session: Session, pool: str) -> None:
        nodes = session.snapshot.nodes
        self.session = session
        self.pool = pool
        self.candidates = Candidates(budgets=session.budgets)
        self.ix_of: Mapping[str, int] = nodes.cards.ix
        self.pools: Sequence[str] = nodes.pool
        self.leaf_of = session.queues[pool].leaf_of
        # Each workload w that was added, with its queue and its number of live pods, and the pods
        # of each node with their w.
        self._entered: list[tuple[WorkloadView, Queue, int]] = []
        self._by_node: list[list[tuple[int, PodView]]] = [[] for _ in range(len(nodes))]

    def add(self, workload: WorkloadView, state: PodState) -> None:
        """Gather the workload's pods in the pool, if they may be evicted or moved: if all that are
        placed are in this state."""
        ix_of, pools, pool = self.ix_of, self.pools, self.pool
        n_live = 0
        places: list[tuple[int, PodView]] = []
        for pod in workload.pods:
            if pod.next_node:
                return
            if pod.node and not pod.is_terminating:
                if pod.state != state:
                    return
                n_live += 1
                ix = ix_of.get(pod.node, -1)
                if ix >= 0 and pools[ix] == pool:
                    places.append((ix, pod))
        leaf = self.leaf_of(workload) if places else None
        if leaf is None or (len(places) < n_live and self.session.draft.has_victims(workload.key)):
            return
        if len(places) > 1:
            places = [(ix_of[pod.node], pod) for pod in in_eviction_order(pod for _, pod in places)]
        w = len(self._entered)
        self._entered.append((workload, leaf, n_live))
        for ix, pod in places:
            self._by_node[ix].append((w, pod))

    def finish(self, barred: Iterable[str]) -> None:
        """Lay out the arrays; the workloads of the keys `barred` are not eligible."""
        candidates, session, entered = self.candidates, self.session, self._entered
        candidates.workloads = [workload for workload, _, _ in entered]
        candidates.leaves = [leaf for _, leaf, _ in entered]
        candidates.n_live = [n_live for _, _, n_live in entered]
        candidates.by_key = {workload.key: w for w, workload in enumerate(candidates.workloads)}
        candidates.members = [[] for _ in entered]
        self._lay_out_pods()
        self._mark_movable()
        self._order_members()
        self._lay_out_queues(session.queues[self.pool])
        self._lay_out_workloads()
        touched = {
            w
            for w, workload in enumerate(candidates.workloads)
            if len(candidates.members[w]) != 1 or candidates.n_live[w] != 1
        }
        for p in candidates.apply_budgets():
            touched.add(candidates.owner[p])
        for w in touched:
            candidates.refresh(w)
        candidates.bar_all(barred)

    def _lay_out_pods(self) -> None:
        candidates, snapshot = self.candidates, self.session.snapshot
        now_s, by_node = snapshot.now_s, self._by_node
        start = accumulate(map(len, by_node), initial=0)
        listed = list(chain.from_iterable(by_node))
        # Lists grow faster than arrays, column by column fastest; this covers all running pods.
        pods = candidates.pods = [pod for _, pod in listed]
        owner = [w for w, _ in listed]
        for p, w in enumerate(owner):
            candidates.members[w].append(p)
        held = [held_amounts(pod, 0) for pod in pods]
        usual_s = self.session.snapshot.pools[self.pool].checkpoint_s
        lost = [
            seconds_lost(pod, now_s, usual_s) * milli
            for pod, (milli, _, _) in zip(pods, held, strict=True)
        ]
        shape = candidates.number_shapes(pods)
        cards = [pod.cards for pod in pods]
        candidates.start = array("i", start)
        candidates.card_start = array("i", accumulate(map(len, cards), initial=0))
        candidates.owner, candidates.shape = array("i", owner), array("i", shape)
        candidates.card_ix = array("i", [card.index for each in cards for card in each])
        candidates.card_milli = array("i", [card.milli for each in cards for card in each])
        candidates.amounts, candidates.lost = (
            array("q", chain.from_iterable(held)),
            array("q", lost),
        )
        candidates.turn = array("i", bytes(4 * len(pods)))
        candidates.most_pods = max(map(len, by_node), default=0)
        candidates.is_here = bytearray(b"\1" * len(pods))
        candidates.is_core = bytearray(len(pods))

    def _mark_movable(self) -> None:
        candidates = self.candidates
        # A new nomination would be refused to a queue over its limit or a gang below its minimum.
        is_within = {
            leaf: all(q.allocated[r] <= q.limit[r] for q in leaf.chain for r in RESOURCES)
            for leaf in set(candidates.leaves)
        }
        may_move = [
            is_within[leaf] and n_live >= workload.min_member and not has_topology(workload)
            for workload, leaf, n_live in self._entered
        ]
        candidates.may_move = bytearray(
            pod.is_controlled and may_move[w] and candidates.budgets.allow_move(pod)
            for pod, w in zip(candidates.pods, candidates.owner, strict=True)
        )
        candidates.n_moving = array("i", bytes(4 * len(may_move)))
        if moved := self.session.snapshot.moved:
            for pod, w in zip(candidates.pods, candidates.owner, strict=True):
                candidates.n_moving[w] += pod.uid in moved

    def _order_members(self) -> None:
        candidates = self.candidates
        for listed in candidates.members:
            if len(listed) > 1:
                by_uid = {candidates.pods[p].uid: p for p in listed}
                in_order = in_eviction_order(candidates.pods[p] for p in listed)
                listed[:] = [by_uid[pod.uid] for pod in in_order]
                for turn, p in enumerate(listed):
                    candidates.turn[p] = turn

    def _lay_out_queues(self, queues: PoolQueues) -> None:
        candidates = self.candidates
        known: Collection[Queue] = (*queues.by_name.values(), *candidates.leaves)
        for queue in known:
            if queue not in candidates.queue_ix:
                candidates.queue_ix[queue] = len(candidates.queues)
                candidates.queues.append(queue)
        candidates.has = array("q", bytes(24 * len(candidates.queues)))
        candidates.sync(candidates.queues)
        candidates.had = candidates.has[:]

    def _lay_out_workloads(self) -> None:
        candidates, workloads = self.candidates, self.candidates.workloads
        amounts, lead = candidates.amounts, [listed[0] for listed in candidates.members]
        candidates.priority = array("i", [workload.priority for workload in workloads])
        candidates.age = array("q", [max(0, _EPOCH_END - each.created_at) for each in workloads])
        is_by_priority = self.session.snapshot.pools[self.pool].policy == "priority"
        is_first = self.session.firsts.is_first
        candidates.is_first = bytearray(
            not is_by_priority and is_first(workload, leaf.project)
            for workload, leaf in zip(workloads, candidates.leaves, strict=True)
        )
        candidates.rank = array("i", _ranks(candidates, is_by_priority=is_by_priority))
        candidates.queue = array("i", [candidates.queue_ix[leaf] for leaf in candidates.leaves])
        candidates.surplus = array("i", [max(0, 1 - workload.min_member) for workload in workloads])
        candidates.whole_lost = array("q", [candidates.lost[p] for p in lead])
        by_pod = list(zip(amounts[::3], amounts[1::3], amounts[2::3], strict=True))
        candidates.whole_amounts = array("q", chain.from_iterable([by_pod[p] for p in lead]))
        candidates.is_stuck = bytearray(len(candidates.workloads))


def _ranks(candidates: Candidates, *, is_by_priority: bool) -> list[int]:
    """The rank of each workload in its project, lowest first: by kind within the quota, then by
    priority.

    Ranks make different projects comparable, whose priorities are not. In pools of policy
    `priority` these are comparable, and the ranks are those of the whole pool.
    """
    keys = [
        (None if is_by_priority else leaf.project, (bool(is_first), priority))
        for leaf, is_first, priority in zip(
            candidates.leaves, candidates.is_first, candidates.priority, strict=True
        )
    ]
    found: dict[Queue | None, set[tuple[bool, int]]] = {}
    for project, key in keys:
        found.setdefault(project, set()).add(key)
    rank_of = {
        project: {key: rank for rank, key in enumerate(sorted(listed))}
        for project, listed in found.items()
    }
    return [rank_of[project][key] for project, key in keys]


def in_eviction_order(pods: Iterable[PodView]) -> list[PodView]:
    """Pods of one workload in the order of their eviction: lowest `order` first, then youngest."""
    by_name = sorted(pods, key=lambda pod: (len(pod.name), pod.name), reverse=True)
    return sorted(by_name, key=lambda pod: (pod.order, -pod.created_at))

"""Lets victims of earlier rounds stay on their nodes, where work nominated there fits elsewhere.

A pod that is evicted in one round and placed on another node in a later one would be moved. If the
pods that are nominated to its old place fit elsewhere, such as on its new place, nothing has to
move.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from extender.policy.plan import Placement
from extender.policy.preemption.statement import is_over
from extender.policy.session import Session
from extender.policy.workloads.gangs import has_topology
from extender.policy.workloads.pod_classes import in_packing_order
from extender.state.model import PodView, WorkloadView

#: A pod and its workload.
_Member = tuple[PodView, WorkloadView]


@dataclass(slots=True)
class SparedMoves:
    """`ends` says by UID where pods are at the end; the simulation of `session`, that of the last
    round, holds all of them. Pods that a topology confines are left as they are."""

    session: Session
    ends: dict[str, PodView]

    def run(self, victims: Iterable[_Member], nominated: Iterable[_Member]) -> None:
        """Let victims stay that would move to another node, those that have run longest first.
        `nominated` are pending pods that do not start at once."""
        ends, by_node = self.ends, defaultdict[str, list[PodView]](list)
        moving = [
            pod
            for pod, workload in victims
            if pod.uid in ends and ends[pod.uid].node != pod.node and not has_topology(workload)
        ]
        for pod, workload in nominated if moving else ():
            if not has_topology(workload):
                by_node[ends[pod.uid].node].append(pod)
        for pod in sorted(moving, key=lambda pod: (pod.started_at, pod.key)):
            others = [other for other in by_node[pod.node] if ends[other.uid].node == pod.node]
            others.sort(key=lambda other: other.key)
            if others and not self.session.places.pod_affinity.concerns((pod, *others)):
                self._let_stay(pod, others)

    def _let_stay(self, pod: PodView, others: Sequence[PodView]) -> None:
        """Return the pod to its old place, if the others on its cards fit elsewhere after that."""
        sim, ends, pools = self.session.sim, self.ends, self.session.snapshot.nodes.pool
        ix, new_ix = (sim.later.cards.ix[node] for node in (pod.node, ends[pod.uid].node))
        if pools[ix] != pools[new_ix] or not _counts_alike(pod, pod, ends[pod.uid]):
            # Its queue might lack room for it there.
            return
        mark = sim.checkpoint()
        sim.evict(new_ix, pod, ends[pod.uid].cards)
        sim.hold(ix, pod, pod.cards)
        in_the_way = _on_cards_of(pod, others, ends) or others
        for other in in_the_way:
            sim.evict(ix, other, ends[other.uid].cards)
        placed = self._place(in_the_way, pools[ix])
        if placed is None or is_over(sim.later, ix):
            sim.rollback(mark)
            return
        ends[pod.uid] = pod
        for placement in placed:
            was = ends[placement.pod.uid]
            ends[placement.pod.uid] = replace(was, node=placement.node, cards=placement.cards)

    def _place(self, pods: Sequence[PodView], pool: str) -> list[Placement] | None:
        """New placements in which the pods count as much as before; None if there are none."""
        placed = []
        for pod in in_packing_order(pods):
            placement = self.session.places.place_pod(pod, pool, "later")
            if placement is None or not _counts_alike(pod, placement, self.ends[pod.uid]):
                return None
            placed.append(placement)
        return placed


def _counts_alike(pod: PodView, one: PodView | Placement, other: PodView) -> bool:
    """Whether the pod counts as much in both places; a request in MiB is a larger fraction of a
    small card than of a large one."""
    amounts = [Placement(pod, each.node, each.cards).amounts for each in (one, other)]
    return amounts[0] == amounts[1]


def _on_cards_of(
    pod: PodView, others: Iterable[PodView], ends: Mapping[str, PodView]
) -> list[PodView]:
    cards = {share.index for share in pod.cards}
    return [
        other
        for other in others
        if not cards.isdisjoint(share.index for share in ends[other.uid].cards)
    ]

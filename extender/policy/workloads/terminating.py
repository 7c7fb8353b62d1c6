"""How long evicted pods may take to end, and the message for a workload that waits for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.units import count_gpus
from extender.policy.queues.tree import held_pool, tally_of
from extender.state.model import PodView, WorkloadView, max_grace_s
from extender.state.snapshot import Snapshot

#: Pods of the workload's own project that are named before "N more".
_NAMED = 3

_TerminatingPod = tuple[WorkloadView, PodView]


def bound_s(snapshot: Snapshot, project: str, pool: str) -> int:
    """The longest grace period, in seconds, of an evicted pod of the project in the pool."""
    return max_grace_s(snapshot.queues.get(project), snapshot.pools.get(pool))


@dataclass(slots=True)
class Leaving:
    """The terminating pods, by node."""

    snapshot: Snapshot
    _by_node: dict[str, list[_TerminatingPod]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_node = {}
        for key in sorted(tally_of(self.snapshot).leaving):
            workload = self.snapshot.workloads[key]
            for pod in sorted(workload.pods, key=lambda pod: pod.key):
                if pod.is_terminating and pod.node:
                    self._by_node.setdefault(pod.node, []).append((workload, pod))

    def describe_wait(self, workload: WorkloadView, places: Sequence[PodView]) -> str:
        """A message: the terminating pods that the workload's nominated pods wait for.

        Pods of its own project are named, others are given as project and GPUs. It ends with the
        longest time that they may take. `places` are the nominated pods.
        """
        found = [
            each
            for node in dict.fromkeys(pod.node for pod in places)
            for each in self._on_wanted_cards(node, [pod for pod in places if pod.node == node])
        ]
        if not found:
            nodes = sorted({pod.node for pod in places})
            return f"waits for pods to leave {', '.join(nodes)}"
        most_s = max(self._grace_s(owner, pod) for owner, pod in found)
        return f"waits for {_named_pods(workload, found)} to end: up to {most_s} s"

    def _on_wanted_cards(self, node: str, places: Sequence[PodView]) -> list[_TerminatingPod]:
        """Terminating pods on the node that hold cards of `places`; all of them if none does."""
        wanted = {card.index for pod in places for card in pod.cards}
        there = self._by_node.get(node, [])
        return [each for each in there if wanted & {c.index for c in each[1].cards}] or there

    def _grace_s(self, owner: WorkloadView, pod: PodView) -> int:
        pool = held_pool(self.snapshot, pod)
        return min(pod.grace_s, bound_s(self.snapshot, owner.project, pool))


def _named_pods(workload: WorkloadView, found: Sequence[_TerminatingPod]) -> str:
    own = [pod.key for owner, pod in found if owner.project == workload.project]
    named = own[:_NAMED]
    if len(own) > _NAMED:
        named.append(f"{len(own) - _NAMED} more")
    others: dict[str, list[PodView]] = {}
    for owner, pod in found:
        if owner.project != workload.project:
            others.setdefault(owner.project, []).append(pod)
    for project, pods in sorted(others.items()):
        of = f"project {project}" if project else "no project"
        n = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
        milli = sum(pod.held_milli for pod in pods)
        named.append(f"{n} of {of}" + (f" ({count_gpus(milli)})" if milli else ""))
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))

"""Events about an eviction, for the victim and for the workload that it is evicted for.

A workload of another project appears as its project and GPUs, never by name: a user without the
right to list pods must not learn their names.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from extender.api.objects import OwnerReference
from extender.api.reasons import MOVES, Reason
from extender.api.units import count_gpus
from extender.cycle.pod_events import PodEvents, owner_reference, pod_reference
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.policy.plan import Eviction
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView

#: How many pods of the own project an event names before "and N more".
_NAMED: Final = 3
_VERBS: Final = {
    Reason.RECLAIMED: "reclaimed",
    Reason.PREEMPTED: "preempted",
    Reason.MOVED: "moved to make room",
    Reason.NODE_EMPTIED: "moved so that its node becomes empty",
    Reason.GANG_STALE: "stopped with its gang",
}


class EvictionEvents:
    """Records events about accepted evictions."""

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._events = PodEvents(state, recorder)

    def tell_victim(
        self,
        eviction: Eviction,
        victim: WorkloadView | None,
        beneficiary: WorkloadView | None,
        maker: OwnerReference | None,
    ) -> None:
        """One event on the pod and one on its `maker`: why it is evicted, and what happens next.

        The pod may be gone already.
        """
        note = victim_note(eviction, victim, beneficiary, maker)
        is_own = beneficiary is not None and _is_own(victim, beneficiary)
        related = None
        if beneficiary is not None and beneficiary.pods and is_own:
            related = pod_reference(beneficiary.pods[0])
        pod, reason = eviction.pod, eviction.reason
        self._recorder.record(pod_reference(pod), reason, note, "Warning", related)
        if maker is not None:
            about = owner_reference(maker, pod.namespace)
            self._recorder.record(about, reason, f"{pod.name}: {note}", "Warning", related)

    def tell_beneficiary(
        self, beneficiary: WorkloadView, left: Sequence[tuple[PodView, WorkloadView | None]]
    ) -> None:
        """One event on the workload's first pod and on its owner: how many pods are evicted."""
        if beneficiary.pods and left:
            note = beneficiary_note(beneficiary, left)
            pod = beneficiary.pods[0]
            self._events.tell(pod, Reason.WAITING_FOR_VICTIMS, note, "Normal", owner_note=note)

    def tell_nodes(self, moved: Iterable[Eviction]) -> None:
        """One event on each node that these moves empty."""
        n_pods = Counter(eviction.pod.node for eviction in moved)
        for node, n in n_pods.items():
            leave = "1 pod leaves" if n == 1 else f"{n} pods leave"
            note = f"{leave} it for other nodes: no pod with GPUs is left"
            # An event names a node by name and not by UID, as kubelet's own events do.
            about = ObjectRef("v1", "Node", node, "", node)
            self._recorder.record(about, Reason.NODE_EMPTIED, note, "Normal")


def victim_note(
    eviction: Eviction,
    victim: WorkloadView | None,
    beneficiary: WorkloadView | None,
    maker: OwnerReference | None,
) -> str:
    """Why the pod is evicted, for which workload, and whether it will run again."""
    what = _VERBS.get(eviction.reason, "stopped")
    if beneficiary is not None:
        what = f"{what} for {_title(beneficiary, victim)}"
    if eviction.reason is Reason.PREEMPTED and beneficiary is not None:
        what += f": its priority is {beneficiary.priority}, this pod's is {eviction.pod.priority}"
    elif eviction.note:
        what += f": {eviction.note}"
    if maker is None:
        return f"{what}. No controller owns the pod, so Kubernetes does not create it again."
    owner, is_moved = f"{maker.kind} {maker.name}", eviction.reason in MOVES
    if _is_stock(maker):
        then = "" if is_moved else ", and the new pod is queued"
        return f"{what}. {owner} creates the pod again{then}."
    then = "" if is_moved else "; a new pod is queued"
    return f"{what}. {owner} decides whether to create the pod again{then}."


def _is_stock(maker: OwnerReference) -> bool:
    """Whether a controller of Kubernetes itself creates the pods of this owner, and so creates them
    again; operators may end the work instead."""
    return (maker.api_version, maker.kind) == ("v1", "ReplicationController") or (
        maker.api_version.startswith(("apps/", "batch/"))
    )


def beneficiary_note(
    beneficiary: WorkloadView, left: Sequence[tuple[PodView, WorkloadView | None]]
) -> str:
    """Which pods are evicted for the workload: its own project's by name, others as GPUs."""
    own = [pod.name for pod, victim in left if _is_own(victim, beneficiary)]
    others: dict[str, int] = {}
    for pod, victim in left:
        if not _is_own(victim, beneficiary):
            project = victim.project if victim else ""
            others[project] = others.get(project, 0) + pod.held_milli
    named = own[:_NAMED]
    if len(own) > _NAMED:
        named.append(f"{len(own) - _NAMED} more")
    for project, milli in sorted(others.items()):
        of = f"project {project}" if project else "another project"
        named.append(f"{count_gpus(milli)} of {of}")
    leave = "1 pod leaves" if len(left) == 1 else f"{len(left)} pods leave"
    return f"{leave} for it: {', '.join(named)}"


def _is_own(one: WorkloadView | None, other: WorkloadView) -> bool:
    return one is not None and one.project == other.project


def _title(workload: WorkloadView, reader: WorkloadView | None) -> str:
    """The workload, by key or only by project, depending on its reader's project."""
    milli = sum(pod.demand.milli * pod.demand.devices for pod in workload.pods)
    gpus = f" ({count_gpus(milli)})" if milli else ""
    if _is_own(reader, workload):
        return f"{workload.key}{gpus}"
    return f"project {workload.project}{gpus}"

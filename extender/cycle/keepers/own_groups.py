"""Creates GpuPodGroups for groups that only pods name, and deletes them again.

Such a group is owned by the controllers of its pods (owner references), so it is deleted with them.
It is also deleted after `KEPT_S` without a live pod: an ended Job leaves no empty group behind, and
a gang recreated within that time keeps its age. Once a user has changed its spec, a group stays as
long as its owners.
"""

from collections.abc import Iterable
from typing import Any, Final

import structlog

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import GpuPodGroup
from extender.api.reasons import Reason
from extender.cycle.pod_events import PodEvents
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, Conflict
from extender.kube.resources import POD_GROUPS
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.workloads.own_groups import is_made_by_us

#: How long a group of ours is kept without a live pod: longer than a Job waits before it creates
#: evicted pods again, which is 10 minutes at most and reached by a gang of 7 pods.
KEPT_S: Final = 660.0
#: Seconds between two searches for groups without pods.
LOOK_S: Final = 20.0
#: Most owner references of a group. A group with more controllers gets none, and is deleted after
#: its last pod is gone.
MAX_OWNERS: Final = 10

log = structlog.get_logger(__name__)


class OwnGroups:
    """Creates missing groups and deletes those no longer needed."""

    def __init__(self, client: Client, state: ClusterState, events: PodEvents) -> None:
        self._client = client
        self._state = state
        self._events = events
        self._empty_since: dict[str, float] = {}
        self._warned: set[str] = set()
        self._looked_at = float("-inf")

    async def keep(self, snapshot: Snapshot, changed: Iterable[str], now: float) -> bool:
        """Create missing groups of the changed workloads and delete those that are over; returns
        whether all writes succeeded."""
        workloads, groups = snapshot.workloads, self._state.pod_groups
        grouped = [workloads[key] for key in changed if key in workloads]
        grouped = [workload for workload in grouped if workload.is_group]
        for workload in grouped:
            self._warn_of_size(workload)
        missing = [workload for workload in grouped if workload.key not in groups]
        writes = [self._make(workload) for workload in missing]
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            writes += [self._delete(groups[key]) for key in self.over(snapshot, now)]
            self._warned &= workloads.keys()
        return await write_all(writes, what="pod group")

    def over(self, snapshot: Snapshot, now: float) -> list[str]:
        """Keys of our groups that have had no live pod for `KEPT_S`."""
        self._empty_since = {
            key: self._empty_since.get(key, now)
            for key, group in self._state.pod_groups.items()
            if key not in snapshot.workloads and is_made_by_us(group)
        }
        return [key for key, since in self._empty_since.items() if now - since >= KEPT_S]

    def _warn_of_size(self, workload: WorkloadView) -> None:
        """Report once that nothing states the size of a group with several pods."""
        if len(workload.pods) < 2 or workload.key in self._warned:
            return
        if self._state.is_sized(workload):
            return
        self._warned.add(workload.key)
        note = (
            f"group {workload.name} has no size, so its pods start one by one; state it on the pods"
            f" with the annotation {names.ANNOTATION_MIN_MEMBER}, or in a GpuPodGroup"
        )
        self._events.tell(workload.pods[0], Reason.GANG_SIZE_UNKNOWN, note, owner_note=note)

    async def _make(self, workload: WorkloadView) -> None:
        body = group_of(workload, self._owners_of(workload))
        try:
            group = await self._client.create(POD_GROUPS, body, namespace=workload.namespace)
        except AlreadyExists:
            return  # the watch will deliver it
        self._state.apply(Upserted(group))

    def _owners_of(self, workload: WorkloadView) -> list[dict[str, Any]]:
        """The controllers of the pods, as owner references; none if there are too many."""
        found: dict[str, dict[str, Any]] = {}
        for pod in workload.pods:
            maker = self._state.maker_of(pod)
            if maker is not None and all((maker.api_version, maker.kind, maker.name, maker.uid)):
                found[maker.uid] = {
                    "apiVersion": maker.api_version,
                    "kind": maker.kind,
                    "name": maker.name,
                    "uid": maker.uid,
                    "blockOwnerDeletion": False,
                }
        return list(found.values()) if len(found) <= MAX_OWNERS else []

    async def _delete(self, group: GpuPodGroup) -> None:
        meta = group.metadata
        try:
            await self._client.delete(POD_GROUPS, meta.name, meta.namespace, uid=meta.uid)
        except Conflict:
            return  # another group has the name now
        self._state.apply(Removed(GpuPodGroup, meta.uid, meta.namespace, meta.name))
        log.info("deleted group without pods", group=meta.key)


def group_of(workload: WorkloadView, owners: list[dict[str, Any]]) -> dict[str, Any]:
    """The GpuPodGroup of a workload that only its pods name."""
    return {
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "labels": {names.LABEL_MANAGED_BY: names.CONTROLLER_NAME},
            "annotations": {names.ANNOTATION_MIN_MEMBER: str(workload.min_member)},
            "ownerReferences": owners,
        },
        "spec": {"minMember": workload.min_member},
    }

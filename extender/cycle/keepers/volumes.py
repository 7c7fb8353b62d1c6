"""Reads the PersistentVolumeClaims of pending pods, so that plans know where they can run.

Claims are read by name once a pending pod names them, and again from time to time. Watching all
claims and volumes of a cluster would cost more than reading the few that GPU pods name.
"""

import asyncio
from typing import Final

import structlog

from extender.api.volumes import NO_PROVISIONER, PersistentVolumeClaim
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound, NotLeading
from extender.kube.resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from extender.state.cluster import ClusterState
from extender.state.pods.claims import VolumeView

#: Seconds after which a claim is read again: with a volume, and without.
BOUND_FOR_S: Final = 60.0
OPEN_FOR_S: Final = 5.0
#: Claims read again per second; if there are more, each is read less often.
_READS_A_SECOND: Final = 10
#: Claims read in one pass; others wait for the next.
_READS_A_PASS: Final = 32

log = structlog.get_logger(__name__)


class VolumeReader:
    """Keeps the model's views of pending pods' claims up to date."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._due: dict[tuple[str, str], float] = {}
        self._pause_s = OPEN_FOR_S
        #: Whether claims are left for another pass, which should come soon.
        self.is_behind = False

    async def keep(self) -> None:
        """Read claims that are new or were read some time ago, the oldest read first."""
        now = asyncio.get_running_loop().time()
        wanted = self._state.wanted_claims()
        for namespace, name in self._due.keys() - wanted:
            del self._due[namespace, name]
            self._state.set_volume(namespace, name, None)
        self._pause_s = max(OPEN_FOR_S, len(wanted) / _READS_A_SECOND)
        due = [claim for claim in wanted if self._due.get(claim, 0.0) <= now]
        due = _in_turns(due, self._due)
        self.is_behind = len(due) > _READS_A_PASS
        async with asyncio.TaskGroup() as tasks:
            for claim in due[:_READS_A_PASS]:
                tasks.create_task(self._read(claim, now))

    async def _read(self, claim: tuple[str, str], now: float) -> None:
        namespace, name = claim
        try:
            view, is_bound = await self._look(namespace, name)
        except NotLeading:
            raise
        except KubeError as error:
            log.warning("claim not read", claim=f"{namespace}/{name}", error=str(error))
            view, is_bound = VolumeView(doubt="could not be read"), False
        self._due[claim] = now + max(BOUND_FOR_S if is_bound else 0.0, self._pause_s)
        self._state.set_volume(namespace, name, view)

    async def _look(self, namespace: str, name: str) -> tuple[VolumeView, bool]:
        """The view of the claim, and whether it has its volume."""
        try:
            claim = await self._client.get(CLAIMS, name, namespace)
        except NotFound:
            return VolumeView(problem="it does not exist"), False
        if claim.metadata.deletion_timestamp is not None:
            return VolumeView(problem="it is being deleted"), False
        doubt = "may be used by one pod alone" if _is_for_one_pod(claim) else ""
        if claim.spec.volume_name and claim.status.phase == "Bound":
            try:
                volume = await self._client.get(VOLUMES, claim.spec.volume_name)
            except NotFound:
                return VolumeView(problem="its PersistentVolume does not exist"), False
            affinity = volume.spec.node_affinity
            required = affinity.required if affinity else None
            return VolumeView(doubt=doubt, affinity=required), True
        if claim.status.phase == "Lost":
            return VolumeView(problem="its PersistentVolume is lost"), False
        return await self._look_at_class(claim.spec.storage_class_name or "", doubt), False

    async def _look_at_class(self, name: str, doubt: str) -> VolumeView:
        """The view of a claim without a volume, by its StorageClass."""
        if not name:
            return VolumeView(problem="it is not bound to a volume")
        try:
            found = await self._client.get(STORAGE_CLASSES, name)
        except NotFound:
            return VolumeView(problem=f"its StorageClass {name} does not exist")
        if found.volume_binding_mode != "WaitForFirstConsumer":
            return VolumeView(problem="it is not bound to a volume")
        if found.allowed_topologies or found.provisioner == NO_PROVISIONER:
            doubt = "gets its volume on some nodes only"
        return VolumeView(doubt=doubt, is_open=True)


def _in_turns(
    due: list[tuple[str, str]], at: dict[tuple[str, str], float]
) -> list[tuple[str, str]]:
    """The claims in the order of reading: longest due first, but one of each namespace in turn, so
    that a namespace with many claims does not delay others."""
    n_before: dict[str, int] = {}
    turns = []
    for claim in sorted(due, key=lambda claim: (at.get(claim, 0.0), claim)):
        n_before[claim[0]] = n_before.get(claim[0], 0) + 1
        turns.append((n_before[claim[0]], at.get(claim, 0.0), claim))
    return [claim for _, _, claim in sorted(turns)]


def _is_for_one_pod(claim: PersistentVolumeClaim) -> bool:
    return "ReadWriteOncePod" in (claim.spec.access_modes or ())

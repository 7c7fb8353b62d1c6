"""Which Workloads of the manager cluster need a nomination, and among which clusters. Pure."""

from collections.abc import Callable
from typing import Any, Final

from extender.api.events import Event, Removed, Upserted
from extender.dispatch.kinds import (
    ADMISSION_CHECKS,
    CLUSTERS,
    CONFIGS,
    MULTIKUEUE,
    WORKLOADS,
    AdmissionCheck,
    CheckState,
    MultiKueueCluster,
    MultiKueueConfig,
    Progress,
    Workload,
)

#: The watched kinds.
WATCHED: Final = (ADMISSION_CHECKS, CONFIGS, CLUSTERS, WORKLOADS)


class DispatchState:
    """The newest version of each watched object."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each event."""
        self._changed = changed
        self._objects: dict[type, dict[str, Any]] = {each.kind: {} for each in WATCHED}

    def apply(self, event: Event) -> None:
        """Apply an event of a watch."""
        if isinstance(event, Upserted):
            self._objects[type(event.obj)][event.obj.metadata.key] = event.obj
        elif isinstance(event, Removed):
            self._objects[event.kind].pop(f"{event.namespace}/{event.name}", None)
        self._changed()

    def pending(self) -> dict[str, Workload]:
        """Workloads that wait for a cluster, by key; ordered by priority, then age."""
        found = [each for each in self._objects[Workload].values() if self.check_of(each)]
        found.sort(key=_turn)
        return {each.key: each for each in found}

    def check_of(self, workload: Workload) -> str:
        """MultiKueue's AdmissionCheck for which alone the Workload waits; empty if there is none.

        The Workload has its quota on the manager cluster, all other checks are ready, and no
        cluster has admitted it: the moment at which Kueue's own dispatchers nominate.
        """
        status = workload.status
        is_over = status.has("Finished") or status.has("Evicted") or status.cluster_name
        if is_over or workload.metadata.deletion_timestamp or not status.has("QuotaReserved"):
            return ""
        ours = [each for each in status.admission_checks if self._is_multikueue(each)]
        others = [each for each in status.admission_checks if each not in ours]
        is_due = all(each.state == "Ready" for each in others)
        return ours[0].name if is_due and ours and ours[0].state == "Pending" else ""

    def progress(self, namespace: str, name: str) -> Progress:
        """The progress of the Workload."""
        found: Workload | None = self._objects[Workload].get(f"{namespace}/{name}")
        if found is None or found.status.has("Finished"):
            return "gone"
        return "admitted" if found.status.cluster_name else "waits"

    def clusters_of(self, check: str) -> list[str]:
        """Names of the clusters of an AdmissionCheck, in order of preference."""
        found: AdmissionCheck | None = self._objects[AdmissionCheck].get(f"/{check}")
        parameters = found.spec.parameters if found else None
        if parameters is None or parameters.kind != MultiKueueConfig.__name__:
            return []
        config: MultiKueueConfig | None = self._objects[MultiKueueConfig].get(f"/{parameters.name}")
        return config.spec.clusters if config else []

    def cluster(self, name: str) -> MultiKueueCluster | None:
        """The worker cluster of this name, if its object exists."""
        found: MultiKueueCluster | None = self._objects[MultiKueueCluster].get(f"/{name}")
        return found

    def _is_multikueue(self, check: CheckState) -> bool:
        found: AdmissionCheck | None = self._objects[AdmissionCheck].get(f"/{check.name}")
        return found is not None and found.spec.controller_name == MULTIKUEUE


def _turn(workload: Workload) -> tuple[int, float, str]:
    meta = workload.metadata
    created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
    return -(workload.spec.priority or 0), created, workload.key

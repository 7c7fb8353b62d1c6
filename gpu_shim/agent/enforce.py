"""Checks the node once a second, and reports or evicts pods that break their bounds.

An evicted pod is deleted with a short grace period, not through the Eviction API: a tenant could
protect itself by its own PodDisruptionBudget, and the right to delete can be limited to pods of
this node.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from extender.api.reasons import Reason
from extender.kube.client import Client
from extender.kube.errors import Conflict, KubeError, NotFound
from extender.kube.recorder import EventRecorder, ObjectRef
from extender.kube.resources import PODS
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Auditor, Breach, CardUsers, Sight
from gpu_shim.agent.cgroups import pod_of
from gpu_shim.agent.nri.plugin import NodePlugin
from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.agent.restarts import Restarts

EVERY_S: Final = 1.0
#: The grace period of an evicted pod. With the time until detection (`audit.PATIENCE_S`, and one
#: check) and kubelet's own, the pod is gone ten seconds after its first use.
GRACE_S: Final = 3

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True)
class Sources:
    """The sources of findings; a node without a driver or a runtime has fewer."""

    nvml: Nvml | None = None
    plugin: NodePlugin | None = None
    auditor: Auditor = field(default_factory=lambda: Auditor(pod_of))


@dataclass(slots=True, frozen=True)
class EvictionSettings:
    """Whether pods with findings are evicted, after how long, and which namespaces are exempt.

    Tools of the node (DCGM, validators of NVIDIA's operator) use cards that are given to pods;
    their namespaces are exempt from reports too.
    """

    is_on: bool = False
    after_s: float = 30.0
    spared: frozenset[str] = frozenset()


@dataclass(slots=True)
class Enforcer:
    """Reports each finding once while it lasts; restarts and evicts if enabled.

    A pod is evicted once, and only for what no honest program does: when every check for
    `eviction.after_s` has found an evictable breach with the same reason.
    """

    api: Client
    agent: Agent
    sources: Sources
    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    events: EventRecorder | None = None
    restarts: Restarts | None = None
    findings: list[Breach] = field(default_factory=list)
    n_evicted: int = 0
    #: Reported findings that still last, as (uid, reason).
    reported: set[tuple[str, str]] = field(default_factory=set)
    #: Since when an evictable finding lasts, by the same key.
    evictable_since: dict[tuple[str, str], float] = field(default_factory=dict)
    evicting: set[str] = field(default_factory=set)
    clock: Callable[[], float] = time.monotonic

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.act([*self._unprotected_containers(), *await self.audit()])
            self.restart()

    async def audit(self) -> list[Breach]:
        """Findings from the driver's figures; none on a node without a driver."""
        nvml = self.sources.nvml
        if nvml is None:
            return []
        used = {
            uid: [table.used_bytes(at) for at in range(len(self.agent.tenants[uid].cards))]
            for uid, table in self.agent.tables().items()
        }
        sight = await asyncio.to_thread(_memory_by_process, nvml, list(self._ledger().users()))
        # No await from here to the end, so the figures stay consistent.
        return self.sources.auditor.look(self._ledger(), sight, self.clock(), used)

    def _ledger(self) -> CardUsers:
        agent = self.agent
        tenants = list(agent.tenants.values())
        if self.sources.plugin is not None:
            tenants = self.sources.plugin.lender.bounds()
        return CardUsers(tenants, agent.tables(), agent.whole)

    def _unprotected_containers(self) -> Iterable[Breach]:
        return self.restarts.findings() if self.restarts is not None else ()

    def count(self) -> Mapping[str, int]:
        """How many pods break their bounds now, by reason."""
        return Counter(each.reason for each in self.findings)

    async def act(self, found: list[Breach]) -> None:
        """Report new findings; if enabled, evict, with retries until the API server accepts."""
        self.findings = found = [each for each in found if not self._is_spared(each.uid)]
        self.reported &= {(each.uid, each.reason) for each in found}
        self.evicting &= {each.uid for each in found}
        for each in found:
            if (each.uid, each.reason) not in self.reported:
                self._report(each)
                self.reported.add((each.uid, each.reason))
        for uid in sorted(self._due(found) - self.evicting):
            if await self._evict(uid):
                self.evicting.add(uid)

    def restart(self) -> None:
        """End reported containers without the library that kubelet starts again."""
        if self.restarts is None:
            return
        for each in self.restarts.due():
            is_reported = (each.pod, Reason.GPU_UNPROTECTED) in self.reported
            if is_reported and not self._is_spared(each.pod) and self.restarts.restart(each):
                what = f"ended container {each.name}, so that it starts again with the library"
                self._record(each.pod, Reason.GPU_CONTAINER_RESTARTED, what)

    def _is_spared(self, uid: str) -> bool:
        known = self._name_of(uid)
        return known is not None and known[0] in self.eviction.spared

    def _due(self, found: list[Breach]) -> set[str]:
        """Uids of the pods to be evicted now."""
        now_s, before = self.clock(), self.evictable_since
        lasting = {(each.uid, each.reason) for each in found if each.is_evictable}
        self.evictable_since = {key: before.get(key, now_s) for key in lasting}
        if not self.eviction.is_on:
            return set()
        latest_s = now_s - self.eviction.after_s
        return {uid for (uid, _), since in self.evictable_since.items() if since <= latest_s}

    def describe(self, finding: Breach) -> str:
        """The pod and the reason, without figures, which would change from second to second."""
        known = self._name_of(finding.uid)
        return f"{'/'.join(known) if known else finding.uid}: {finding.reason}"

    def _report(self, finding: Breach) -> None:
        what = {"uid": finding.uid, "reason": finding.reason, "message": finding.message}
        _log.warning("found a pod beyond its bounds", **what)
        self._record(finding.uid, finding.reason, finding.message)

    def _record(self, uid: str, reason: Reason, message: str) -> None:
        """An Event on the pod."""
        known = self._name_of(uid)
        if self.events is not None and known is not None:
            about = ObjectRef("v1", "Pod", known[1], known[0], uid)
            self.events.record(about, reason, message, "Warning")

    async def _evict(self, uid: str) -> bool:
        """Evict the pod; return whether it is being deleted, or does not belong to this cluster."""
        known = self._name_of(uid)
        if known is None:
            return True
        namespace, name = known
        try:
            await self.api.delete(PODS, name, namespace, uid=uid, grace_s=GRACE_S)
        except (NotFound, Conflict):
            return True
        except KubeError as error:
            _log.warning("could not evict", uid=uid, error=str(error))
            return False
        self.n_evicted += 1
        return True

    def _name_of(self, uid: str) -> tuple[str, str] | None:
        """(namespace, name) of a pod of this node."""
        if (tenant := self.agent.tenants.get(uid)) is not None:
            return tenant.namespace, tenant.pod
        return self.sources.plugin.pods.get(uid) if self.sources.plugin is not None else None


def _memory_by_process(nvml: Nvml, uuids: Iterable[str]) -> Sight:
    """The driver's figures of these cards; may block for any time.

    A card that does not answer is left out; `watch` handles its health.
    """
    sight = dict[str, Mapping[int, int]]()
    for uuid in uuids:
        with contextlib.suppress(NvmlError):
            sight[uuid] = nvml.processes(uuid)
    return sight

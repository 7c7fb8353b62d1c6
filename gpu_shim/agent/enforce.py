"""Looks at the node once a second, and tells or evicts whoever breaks its bounds."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

import structlog

from extender.kube.client import Client, EvictionRefused
from extender.kube.errors import KubeError
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Auditor, Finding
from gpu_shim.agent.cgroups import pod_of
from gpu_shim.agent.nvml import Nvml, NvmlError

EVERY_S: Final = 1.0

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True)
class Enforcer:
    """The auditor's hands. A finding is told once for as long as it lasts."""

    api: Client
    agent: Agent
    is_evicting: bool
    told: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        """Look until cancelled; raises NvmlError where there is no NVML to begin with."""
        auditor = Auditor(Nvml(), pod_of)
        while True:
            await asyncio.sleep(EVERY_S)
            tenants, tables = self.agent.tenants.values(), self.agent.tables()
            try:
                await self.act(auditor.look(tenants, tables, time.monotonic()))
            except NvmlError as error:
                _log.warning("could not read the cards", node=self.agent.node, error=str(error))

    async def act(self, found: list[Finding]) -> None:
        """Tell what is new; where that is the policy, evict, again and again until accepted."""
        self.told &= {(each.uid, each.reason) for each in found}
        for each in found:
            if (each.uid, each.reason) in self.told:
                continue
            what = {"uid": each.uid, "reason": each.reason, "message": each.message}
            _log.warning("found a pod beyond its bounds", **what)
            if not self.is_evicting or await self._evict(each.uid):
                self.told.add((each.uid, each.reason))

    async def _evict(self, uid: str) -> bool:
        """Whether the pod is going."""
        if (tenant := self.agent.tenants.get(uid)) is None:
            return True
        try:
            answer = await self.api.evict(tenant.namespace, tenant.pod, uid=uid)
        except KubeError as error:
            _log.warning("could not evict", uid=uid, error=str(error))
            return False
        return not isinstance(answer, EvictionRefused)

"""Compares what the driver says with what the tables say, once a second.

What a pod's processes have beyond what the library counted (contexts, modules, calls no hook saw)
is charged to the pod. A process of a pod that uses a shared card without the library, and a pod
that stays above its cap, are found.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gpu_shim.agent.tenants import Tenant
from gpu_shim.arbiter.pages import Table

#: A pod may be above its cap by this part of it, for so long: contexts come before the charge.
SLACK_PERCENT: Final = 2
PATIENCE_S: Final = 3.0
_MIB: Final = 1 << 20

OVER_CAP: Final = "GpuMemoryOverCap"
UNPROTECTED: Final = "GpuUnprotected"


class Driver(Protocol):
    """Where the truth comes from."""

    def processes(self, uuid: str) -> Mapping[int, int]:
        """Bytes of a card's memory by pid."""


@dataclass(slots=True, frozen=True)
class Finding:
    """A pod that breaks its bounds."""

    uid: str
    reason: str
    message: str


@dataclass(slots=True)
class Auditor:
    """`pod_of` tells the uid of the pod that a process of the host belongs to, or nothing."""

    driver: Driver
    pod_of: Callable[[int], str]
    _above_since: dict[tuple[str, str], float] = field(default_factory=dict)

    def look(
        self, tenants: Iterable[Tenant], tables: Mapping[str, Table], now_s: float
    ) -> list[Finding]:
        """Charge what was not counted, and tell who breaks bounds. Raises what the driver does."""
        tenants = list(tenants)
        owners = {use.pid: uid for uid, table in tables.items() for use in table.uses()}
        seen = {
            card.uuid: self.driver.processes(card.uuid)
            for tenant in tenants
            for card in tenant.cards
        }
        found = list[Finding]()
        for tenant in tenants:
            table = tables.get(tenant.uid)
            for at, card in enumerate(tenant.cards):
                mine = {
                    pid: n_bytes
                    for pid, n_bytes in seen[card.uuid].items()
                    if (owners.get(pid) or self.pod_of(pid)) == tenant.uid
                }
                if table is not None:
                    table.set_overhead(at, max(0, sum(mine.values()) - table.used_bytes(at)))
                found += self._unprotected(tenant, card.uuid, mine, owners)
                found += self._over_cap(tenant, card.uuid, card.cap_mib, mine, now_s)
        return found

    def _unprotected(
        self, tenant: Tenant, uuid: str, mine: Mapping[int, int], owners: Mapping[int, str]
    ) -> Iterable[Finding]:
        strangers = [pid for pid in mine if pid not in owners]
        if strangers:
            who = f"{tenant.namespace}/{tenant.pod}"
            what = f"{who}: process {strangers[0]} uses {uuid} without the library"
            yield Finding(tenant.uid, UNPROTECTED, what)

    def _over_cap(
        self, tenant: Tenant, uuid: str, cap_mib: int, mine: Mapping[int, int], now_s: float
    ) -> Iterable[Finding]:
        key, used_mib = (tenant.uid, uuid), sum(mine.values()) // _MIB
        if used_mib * 100 <= cap_mib * (100 + SLACK_PERCENT):
            self._above_since.pop(key, None)
        elif now_s - self._above_since.setdefault(key, now_s) >= PATIENCE_S:
            who = f"{tenant.namespace}/{tenant.pod}"
            what = f"{who}: has {used_mib} MiB of {uuid}, may have {cap_mib}"
            yield Finding(tenant.uid, OVER_CAP, what)

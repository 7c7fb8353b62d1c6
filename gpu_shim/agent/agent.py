"""Keeps the node as its GpuNode says: a folder for each pod, and the arbiter told of all of them.

A pod's folder is what its containers have mounted, read-only but for the socket: `lib/` with the
libraries, `gpu.conf` with the caps, `run/` with the arbiter's socket.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import structlog

from extender.api.kinds import Device, GpuNode, TimeSlicing
from gpu_shim.agent.inventory import by_index
from gpu_shim.agent.tenants import Rejected, Tenant, tenants_of
from gpu_shim.arbiter.pages import Table
from gpu_shim.arbiter.server import Arbiter
from gpu_shim.policy.shares import Mode

LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")

_MS: Final = 1_000_000

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True)
class Agent:
    """The node's pods that share cards. `apply` is the only way anything changes."""

    node: str
    devices: Sequence[Device]
    arbiter: Arbiter
    libraries: Path
    state: Path
    mode: Mode = "fair"
    tenants: dict[str, Tenant] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    is_synced: bool = False

    def apply(self, node: GpuNode | None) -> None:
        """Make the node what its GpuNode says; None: it has none, so nobody shares."""
        rows = node.spec.rows if node is not None else []
        wanted, rejected = tenants_of(rows, by_index(self.devices), self.mode)
        current = {tenant.uid: tenant for tenant in wanted}
        for uid in [uid for uid in self.tenants if uid not in current]:
            self._remove(uid)
        # First who shrinks, then who grows: the sum of all is never above the card in between.
        for tenant in sorted(wanted, key=self._growth):
            if self.tenants.get(tenant.uid) != tenant and (why := self._admit(tenant)):
                rejected.append(Rejected(tenant.uid, why))
        for each in rejected:
            if self.rejected.get(each.uid) != each.why:
                _log.warning("rejected a row", uid=each.uid, why=each.why)
        self.rejected = {each.uid: each.why for each in rejected}
        if not self.is_synced:
            self._sweep()
        self.is_synced = True

    def slice_by(self, rules: TimeSlicing) -> None:
        """Deal time as the node's pool says, from now on; `apply` must follow."""
        precision = Fraction(rules.precision_percent, 100)
        settings = replace(
            self.arbiter.settings, lease_ns=rules.lease_milliseconds * _MS, precision=precision
        )
        self.mode = "strict" if rules.mode == "Strict" else "fair"
        for uid in self.arbiter.configure(settings, is_timed=rules.mode != "Off"):
            self.rejected[uid] = "its compute request no longer fits"

    def _growth(self, tenant: Tenant) -> float:
        before = self.tenants.get(tenant.uid)
        return float(tenant.claim.request - (before.claim.request if before else 0))

    def tables(self) -> dict[str, Table]:
        """The memory tables of all pods that have started a process, by uid."""
        containers = self.arbiter.containers
        return {uid: table for uid in self.tenants if (table := containers[uid].table) is not None}

    def home(self, uid: str) -> Path:
        """The folder that the pod's containers have mounted."""
        return self.state / uid

    def _admit(self, tenant: Tenant) -> str:
        home = self.home(tenant.uid)
        self._furnish(tenant, home)
        if why := self.arbiter.admit(tenant.claim, home / "run" / "arbiter.sock", tenant.cards):
            return why
        self.tenants[tenant.uid] = tenant
        _log.info("admitted a pod", pod=f"{tenant.namespace}/{tenant.pod}", uid=tenant.uid)
        return ""

    def _furnish(self, tenant: Tenant, home: Path) -> None:
        """Make the folder. The configuration appears whole or not at all."""
        (home / "lib").mkdir(parents=True, exist_ok=True)
        for name in LIBRARIES:
            if not (home / "lib" / name).exists():
                _link(self.libraries / name, home / "lib" / name)
        lines = [f"card {card.uuid} {card.cap_mib}\n" for card in tenant.cards]
        fresh = home / "gpu.conf.new"
        fresh.write_text("".join(lines))
        fresh.replace(home / "gpu.conf")

    def _remove(self, uid: str) -> None:
        del self.tenants[uid]
        self.arbiter.remove(uid)
        shutil.rmtree(self.home(uid), ignore_errors=True)
        _log.info("removed a pod", uid=uid)

    def _sweep(self) -> None:
        """Remove folders of pods that went while no agent was here."""
        with contextlib.suppress(FileNotFoundError):
            for folder in self.state.iterdir():
                if folder.name not in self.tenants and (folder / "gpu.conf").exists():
                    shutil.rmtree(folder, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """One file for all pods where the file system allows it, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)

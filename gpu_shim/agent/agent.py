"""Keeps the node as its GpuNode describes it: a folder and a container of the arbiter per pod."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import structlog

from extender.api.kinds import Device, GpuNode, Row, TimeSlicing
from gpu_shim.agent.inventory_file import by_index
from gpu_shim.agent.tenants import Rejected, SharingPod, live, tenants_of, whole_cards
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.home import furnish, socket_path
from gpu_shim.policy.shares import Mode
from gpu_shim.protocol.pages import Table

_MS: Final = 1_000_000

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True)
class Agent:
    """The node's pods that share cards. Only `apply` and `map_cards` change them.

    `devices` are all cards with their index in the ledger; those in `unmapped` are not known to be
    ours yet, so no pod may use them. `whole` are UUIDs by the uid of the pod that has exclusive
    use. `is_running` tells whether a pod has containers, which mount the pod's folder.
    """

    node: str
    devices: Sequence[Device]
    arbiter: Arbiter
    libraries: Path
    state: Path
    mode: Mode = "fair"
    tenants: dict[str, SharingPod] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    whole: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unmapped: frozenset[int] = frozenset()
    ledger: GpuNode | None = None
    #: Whether the node's pool lends memory that no pod requested.
    is_lending: bool = False
    is_synced: bool = False
    is_running: Callable[[str], bool] = lambda _uid: False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows of the node's GpuNode."""
        return self.ledger.spec.rows if self.ledger is not None else ()

    def apply(self, node: GpuNode | None) -> None:
        """Bring the node to the state of its GpuNode; None: there is none, so no card is shared."""
        self.ledger = node
        rows = self.rows
        known = {
            index: device
            for index, device in by_index(self.devices).items()
            if index not in self.unmapped
        }
        self.whole = whole_cards(rows, known)
        wanted, rejected = tenants_of(rows, known, self.mode)
        current = {tenant.uid: tenant for tenant in wanted}
        for uid in [uid for uid in self.tenants if uid not in current]:
            self._remove(uid)
        # Shrinking pods come first, so that the sum never exceeds the card.
        for tenant in sorted(wanted, key=self._growth):
            if self.tenants.get(tenant.uid) != tenant and (why := self._admit(tenant)):
                rejected.append(Rejected(tenant.uid, why))
        for each in rejected:
            if self.rejected.get(each.uid) != each.why:
                _log.warning("rejected a row", uid=each.uid, why=each.why)
        self.rejected = {each.uid: each.why for each in rejected}
        self.is_synced = True
        self.sweep()
        self._changed.set()
        self._changed = asyncio.Event()

    def map_cards(self, devices: Sequence[Device], unmapped: frozenset[int]) -> None:
        """Update the card of each index of the ledger, and the health of all cards.

        Rejected rows are tried again.
        """
        if self.rejected or (list(devices), unmapped) != (list(self.devices), self.unmapped):
            self.devices, self.unmapped = devices, unmapped
            if self.is_synced:
                self.apply(self.ledger)

    def running(self) -> Mapping[int, str]:
        """UUIDs of the cards that pods share now, by the index in their rows."""
        return {
            share.index: card.uuid
            for row in live(self.rows)
            if (tenant := self.tenants.get(row.uid)) is not None
            for share, card in zip(row.cards, tenant.cards, strict=False)
        }

    def row(self, uid: str) -> Row | None:
        """The pod's live row in the ledger of this node."""
        return next((row for row in live(self.rows) if row.uid == uid), None)

    async def changes(self) -> None:
        """Return when the node's state is next applied, changed or not."""
        await self._changed.wait()

    async def knows(self, uid: str, patience_s: float) -> bool:
        """Whether the pod's row is served; waits up to `patience_s` for the row."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while uid not in self.tenants and uid not in self.whole:
            try:
                await asyncio.wait_for(self.changes(), until - loop.time())
            except TimeoutError:
                return False
        return True

    def slice_by(self, rules: TimeSlicing) -> None:
        """Apply the time-slicing settings of the node's pool from now on; `apply` must follow."""
        precision = Fraction(rules.precision_percent, 100)
        settings = replace(
            self.arbiter.settings, lease_ns=rules.lease_milliseconds * _MS, precision=precision
        )
        self.mode = "strict" if rules.mode == "Strict" else "fair"
        for uid in self.arbiter.configure(settings, is_timed=rules.mode != "Disabled"):
            # `apply` tries again, and rejects the row for as long as it does not fit.
            del self.tenants[uid]

    def _growth(self, tenant: SharingPod) -> float:
        before = self.tenants.get(tenant.uid)
        return float(tenant.claim.request - (before.claim.request if before else 0))

    def tables(self) -> dict[str, Table]:
        """The memory tables of all pods that have started a process, by uid."""
        containers = self.arbiter.containers
        return {uid: table for uid in self.tenants if (table := containers[uid].table) is not None}

    def home(self, uid: str) -> Path:
        """The folder that the pod's containers mount."""
        return self.state / uid

    def _admit(self, tenant: SharingPod) -> str:
        home = self.home(tenant.uid)
        try:
            furnish(home, self.libraries, tenant.cards)
            why = self.arbiter.admit(tenant.claim, socket_path(home), tenant.cards)
        except OSError as error:
            why = f"its folder could not be created: {error}"
        if why:
            if tenant.uid not in self.tenants and not self.is_running(tenant.uid):
                shutil.rmtree(home, ignore_errors=True)
            return why
        self.tenants[tenant.uid] = tenant
        _log.info("admitted a pod", pod=f"{tenant.namespace}/{tenant.pod}", uid=tenant.uid)
        return ""

    def _remove(self, uid: str) -> None:
        del self.tenants[uid]
        self.arbiter.remove(uid)
        _log.info("removed a pod", uid=uid)

    def sweep(self) -> None:
        """Remove the folders of pods that have neither a row nor a running container.

        A row can be missing briefly (a GpuNode that is restored). A container keeps the folder that
        it was started with, so its processes can reconnect only through that folder.
        """
        if not self.is_synced:
            return
        with contextlib.suppress(FileNotFoundError):
            for folder in self.state.iterdir():
                uid = folder.name
                if uid in self.tenants or not (folder / "gpu.conf").exists():
                    continue
                if not self.is_running(uid):
                    shutil.rmtree(folder, ignore_errors=True)

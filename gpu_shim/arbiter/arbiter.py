"""The arbiter as a component: containers, the scheduler, the fast path, a timer and a heartbeat.

The scheduler decides on the asyncio loop and plans ahead where it can; the fast path carries plans
out on its own thread. Everything that changes a decision happens between the fast path's
`begin_decision` and `end_decision` (see `_deciding`), so both always act on the same state.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu_shim.arbiter.container import Container, ContainerCard
from gpu_shim.arbiter.fast_path.event_loop import EventLoop
from gpu_shim.arbiter.scheduler.card_slots import CardSlots
from gpu_shim.arbiter.scheduler.gate_observer import GateObserver
from gpu_shim.arbiter.scheduler.scheduler import Scheduler
from gpu_shim.policy.leases import LeaseSettings, Tenant
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library
from gpu_shim.protocol.wire import Gate

#: After one second without a heartbeat all gates count as open; this is well below.
HEARTBEAT_S: Final = 0.2
#: After a restart, the processes from before reconnect within a tenth of a second.
GRACE_S: Final = 0.5


@dataclass(slots=True)
class Arbiter:
    """Enforces the memory caps and time shares of all containers of a node, while `run` runs.

    If time is not sliced (`is_timed` is false), all gates are open and only memory is enforced.
    `pod_of_peer` returns the pod of a socket's peer, "" if that cannot be told.
    """

    library: Library
    settings: LeaseSettings = field(default_factory=LeaseSettings)
    grace_s: float = GRACE_S
    is_timed: bool = True
    pod_of_peer: Callable[[socket.socket], str] | None = None
    observer: GateObserver | None = None
    #: MiB charged to a process for each context on a card.
    context_mib: int = 0
    containers: dict[str, Container] = field(default_factory=dict)
    scheduler: Scheduler = field(init=False)
    fast_path: EventLoop = field(default_factory=EventLoop)
    slots: CardSlots = field(init=False)
    _claims: dict[str, Claim] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.slots = CardSlots(self.fast_path)
        self.scheduler = self._scheduler()

    def _scheduler(self) -> Scheduler:
        return Scheduler(self.slots, self.settings, observer=self.observer)

    # -- changes -------------------------------------------------------------------------------

    def admit(self, claim: Claim, path: Path, cards: tuple[ContainerCard, ...]) -> str:
        """Add a container or change its shares and caps; returns the reason if it does not fit."""
        uuids = tuple(card.uuid for card in cards)
        with self._deciding() as now_ns:
            if self.is_timed and (why := self.scheduler.admit(claim, uuids, now_ns)):
                return why
            self._claims[claim.name] = claim
            if claim.name in self.containers:
                self.containers[claim.name].set_cards(cards)
                return ""
            try:
                self._open(claim.name, path, cards)
            except OSError:
                # The caller tries again; until then the container has no share of the card.
                del self._claims[claim.name]
                self.scheduler.remove(claim.name, now_ns)
                raise
            return ""

    def _open(self, name: str, path: Path, cards: tuple[ContainerCard, ...]) -> None:
        """Create a container's pages and its socket; on OSError nothing is left behind."""
        container = Container(name, path, cards, self.library, self, self.grace_s, self.context_mib)
        container.grants.beat(time.monotonic_ns())
        container.grants.set_plan(int(self.settings.plan_ns))
        uuids = [card.uuid for card in cards]
        container.slot = self.slots.add(name, container.grants.address, uuids)
        for card in () if self.is_timed else uuids:
            self.slots.set_gate(name, card, Gate.OPEN, 0, time.monotonic_ns())
        try:
            container.open()
        except OSError:
            self._close(container)
            raise
        self.containers[name] = container

    def _close(self, container: Container) -> None:
        container.close()
        self.slots.remove(container.name)

    def remove(self, name: str) -> None:
        """Remove a container."""
        if name not in self.containers:
            return
        with self._deciding() as now_ns:
            self._remove(name, now_ns)

    def _remove(self, name: str, now_ns: int) -> None:
        del self._claims[name]
        self._close(self.containers.pop(name))
        self.scheduler.remove(name, now_ns)

    def configure(self, settings: LeaseSettings, is_timed: bool) -> list[str]:
        """Apply new settings; returns the containers that no longer fit, which are removed.

        Their caps stay, and their gates open after a second, as where a row is missing. All
        connections are closed, and every process reconnects within a tenth of a second, so that no
        gate keeps its state under the old settings. Reserved memory stays reserved.
        """
        if (settings, is_timed) == (self.settings, self.is_timed):
            return []
        refused = list[str]()
        with self._deciding() as now_ns:
            self.settings, self.is_timed = settings, is_timed
            self.scheduler = self._scheduler()
            for name, container in self.containers.items():
                container.hang_up()
                container.grants.set_plan(int(settings.plan_ns))
                uuids = tuple(card.uuid for card in container.cards)
                for card in uuids:
                    gate = Gate.CLOSED if is_timed else Gate.OPEN
                    self.slots.set_gate(name, card, gate, 0, now_ns)
            self.slots.reset()
            for name, container in self.containers.items():
                uuids = tuple(card.uuid for card in container.cards)
                if is_timed and self.scheduler.admit(self._claims[name], uuids, now_ns):
                    refused.append(name)
            for name in refused:
                self._remove(name, now_ns)
        return refused

    async def run(self) -> None:
        """Write heartbeats until cancelled, then close all connections."""
        thread = threading.Thread(target=self.fast_path.run, name="fast path", daemon=True)
        thread.start()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.fast_path.fileno(), self._attend)
        try:
            while True:
                now_ns = time.monotonic_ns()
                for container in self.containers.values():
                    container.grants.beat(now_ns)
                self._look_for_stopped()
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            loop.remove_reader(self.fast_path.fileno())
            self.fast_path.stop()
            thread.join()
            for container in self.containers.values():
                self._close(container)
            if self._timer is not None:
                self._timer.cancel()

    def _look_for_stopped(self) -> None:
        for name, container in self.containers.items():
            if self.scheduler.is_suspect(name):
                with self._deciding() as now_ns:
                    self.scheduler.set_stopped(name, container.is_stopped(), now_ns)

    # -- queries -------------------------------------------------------------------------------

    def watch(self, slot: int, sock: socket.socket) -> int:
        """Let the fast path receive a welcomed process; returns its connection there."""
        return self.fast_path.add_connection(slot, sock.fileno())

    def forget(self, connection: int) -> None:
        """Stop receiving this process in the fast path."""
        self.fast_path.remove_connection(connection)

    def belongs(self, sock: socket.socket, container: str) -> bool:
        """Whether a peer may be of the container: false if it is known to be of another pod."""
        return self.pod_of_peer is None or self.pod_of_peer(sock) in ("", container)

    def account(self, container: str, card: str) -> Tenant | None:
        """The policy's account of a container on a card; None if time is not sliced."""
        found = self.scheduler.node.cards.get(card)
        return found.tenants.get(container) if found is not None else None

    # -- deciding ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[int]:
        """Apply events, yield the time for further changes, and plan ahead.

        Meanwhile the fast path carries out no plan. It takes a millisecond at most.
        """
        events = self.fast_path.begin_decision()
        try:
            for slot, connection in events.ended:
                if (name := self.slots.name(slot)) in self.containers:
                    self.containers[name].left(connection)
            self.scheduler.hear(events)
            yield events.now_ns
            self.scheduler.settle(events.now_ns)
            self.scheduler.plan_ahead(events.now_ns)
        finally:
            self.fast_path.end_decision()
            self._rearm()

    def _attend(self) -> None:
        with self._deciding():
            pass

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ns := self.scheduler.next_ns():
            wait_s = max(0, next_ns - time.monotonic_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._attend)

"""The arbiter as a component: containers' doors, the referee, one timer and a heartbeat."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from gpu_shim.arbiter.container import Card, Container
from gpu_shim.arbiter.pages import Library
from gpu_shim.arbiter.referee import Referee
from gpu_shim.arbiter.wire import Gate, Kind, Message
from gpu_shim.policy.leases import Settings, Tenant
from gpu_shim.policy.shares import Claim

#: A silence of one second opens all gates; this is well below.
HEARTBEAT_S: Final = 0.2
#: After a restart, processes of before come back within a tenth of a second.
GRACE_S: Final = 0.5

_log = structlog.get_logger("gpu_shim.arbiter")


@dataclass(slots=True)
class Arbiter:
    """Holds all containers of a node to their memory and time. Use `run` and the three verbs.

    Where time is not sliced (`is_timed` is false) all gates are open and only memory is held.
    """

    library: Library
    settings: Settings = field(default_factory=Settings)
    grace_s: float = GRACE_S
    is_timed: bool = True
    containers: dict[str, Container] = field(default_factory=dict)
    referee: Referee = field(init=False)
    _claims: dict[str, Claim] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.referee = Referee(self, self.settings)

    # -- verbs ---------------------------------------------------------------------------------

    def admit(self, claim: Claim, path: Path, cards: tuple[Card, ...]) -> str:
        """Take a container in or change its shares and caps; why not, where it does not fit."""
        now_ns = time.monotonic_ns()
        uuids = tuple(card.uuid for card in cards)
        if self.is_timed and (why := self.referee.admit(claim, uuids, now_ns)):
            return why
        self._claims[claim.name] = claim
        if claim.name in self.containers:
            self.containers[claim.name].set_cards(cards)
        else:
            container = Container(claim.name, path, cards, self.library, self, self.grace_s)
            self.containers[claim.name] = container
            container.grants.beat(now_ns)
            for at in range(0 if self.is_timed else len(cards)):
                container.grants.set_gate(at, Gate.OPEN, 0)
            container.open()
        self._rearm()
        return ""

    def remove(self, name: str) -> None:
        """Forget a container that is gone."""
        if (container := self.containers.pop(name, None)) is not None:
            del self._claims[name]
            container.close()
            self.referee.remove(name, time.monotonic_ns())
            self._rearm()

    def configure(self, settings: Settings, is_timed: bool) -> list[str]:
        """Deal time differently from now on; names of containers that no longer fit.

        Everybody is hung up on and comes back within a tenth of a second, so that no gate is left
        as it was under the old rules. What is reserved stays reserved.
        """
        if (settings, is_timed) == (self.settings, self.is_timed):
            return []
        self.settings, self.is_timed = settings, is_timed
        self.referee = Referee(self, settings)
        now_ns, refused = time.monotonic_ns(), list[str]()
        for name, container in self.containers.items():
            container.hang_up(Gate.CLOSED if is_timed else Gate.OPEN)
            uuids = tuple(card.uuid for card in container.cards)
            if is_timed and self.referee.admit(self._claims[name], uuids, now_ns):
                refused.append(name)
        self._rearm()
        return refused

    async def run(self) -> None:
        """Beat until cancelled, then hang up on everybody."""
        try:
            while True:
                now_ns = time.monotonic_ns()
                for container in self.containers.values():
                    container.grants.beat(now_ns)
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            for container in self.containers.values():
                container.close()
            if self._timer is not None:
                self._timer.cancel()

    # -- what containers tell ------------------------------------------------------------------

    def joined(self, key: int, container: str) -> None:
        """A process has been welcomed."""
        if self.is_timed:
            self.referee.join(key, container)

    def said(self, key: int, container: str, message: Message) -> None:
        """A process wants, yields or has drained a card."""
        if not self.is_timed:
            return
        now_ns = time.monotonic_ns()
        card = self.containers[container].cards[message.card].uuid
        if message.kind == Kind.WANT:
            self.referee.want(key, card, now_ns)
        elif message.kind == Kind.YIELD:
            self.referee.yielded(key, card, now_ns)
        else:
            self.referee.drained(key, card, message.value, now_ns)
        self._rearm()

    def left(self, key: int) -> None:
        """A process is gone."""
        self.referee.leave(key, time.monotonic_ns())
        self._rearm()

    # -- what the referee does -----------------------------------------------------------------

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        """Write one gate of a container; its generation then."""
        found = self.containers.get(container)
        if found is None:
            return 0
        at = next(at for at, each in enumerate(found.cards) if each.uuid == card)
        return found.grants.set_gate(at, gate, deadline_ns)

    def account(self, container: str, card: str) -> Tenant | None:
        """What the policy knows of a container on a card; None where time is not sliced."""
        found = self.referee.node.cards.get(card)
        return found.tenants.get(container) if found is not None else None

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(0, self.referee.next_ns() - time.monotonic_ns()) / 1e9
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self.referee.settle(time.monotonic_ns())
        self._rearm()

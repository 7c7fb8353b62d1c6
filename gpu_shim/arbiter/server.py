"""The arbiter as a component: containers' doors, the referee, the relay, a timer and a heartbeat.

The referee decides here, in Python. What comes next it decides ahead where it can; the relay, a
thread of its own, then does that when the time has come and tells afterwards. Whatever changes
anything is done between the relay's `take` and `release` (`_deciding`), so that the two never act
on different knowledge.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from gpu_shim.arbiter.container import Card, Container, Places
from gpu_shim.arbiter.news import Act, Order, Said
from gpu_shim.arbiter.pages import Library
from gpu_shim.arbiter.referee import Referee
from gpu_shim.arbiter.relay import Relay
from gpu_shim.arbiter.wire import Gate, Kind, Message
from gpu_shim.policy.foresight import Turn
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
    `pod_of_peer` says whose the other end of a socket is, "" where that can't be told.
    """

    library: Library
    settings: Settings = field(default_factory=Settings)
    grace_s: float = GRACE_S
    is_timed: bool = True
    pod_of_peer: Callable[[socket.socket], str] | None = None
    containers: dict[str, Container] = field(default_factory=dict)
    referee: Referee = field(init=False)
    relay: Relay = field(default_factory=Relay)
    _claims: dict[str, Claim] = field(default_factory=dict)
    #: Numbers of cards in the relay: their places here.
    _cards: list[str] = field(default_factory=list)
    _members: dict[int, str] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    _now_ns: int = 0
    #: The generation of a gate that the relay has set already, while that is retraced.
    _retraced: int | None = None

    def __post_init__(self) -> None:
        self.referee = Referee(self, self.settings)

    # -- verbs ---------------------------------------------------------------------------------

    def admit(self, claim: Claim, path: Path, cards: tuple[Card, ...]) -> str:
        """Take a container in or change its shares and caps; why not, where it does not fit."""
        uuids = tuple(card.uuid for card in cards)
        with self._deciding() as now_ns:
            if self.is_timed and (why := self.referee.admit(claim, uuids, now_ns)):
                return why
            self._claims[claim.name] = claim
            if claim.name in self.containers:
                self.containers[claim.name].set_cards(cards)
                return ""
            try:
                self._open(claim.name, path, cards)
            except OSError:
                # It is tried again; until then it has no part of the card.
                del self._claims[claim.name]
                self.referee.remove(claim.name, now_ns)
                raise
            return ""

    def _open(self, name: str, path: Path, cards: tuple[Card, ...]) -> None:
        """Make a container's pages and its door; raises OSError and leaves nothing."""
        places = Places(self.relay, [self._number_of(card.uuid) for card in cards])
        container = Container(name, path, cards, self.library, self, places, self.grace_s)
        container.grants.beat(time.monotonic_ns())
        for at in range(0 if self.is_timed else len(cards)):
            container.grants.set_gate(at, Gate.OPEN, 0)
        try:
            container.open()
        except OSError:
            container.close()
            raise
        self.containers[name] = container

    def remove(self, name: str) -> None:
        """Forget a container that is gone."""
        if name not in self.containers:
            return
        with self._deciding() as now_ns:
            del self._claims[name]
            self.containers.pop(name).close()
            self.referee.remove(name, now_ns)

    def configure(self, settings: Settings, is_timed: bool) -> list[str]:
        """Deal time differently from now on; names of containers that no longer fit.

        Everybody is hung up on and comes back within a tenth of a second, so that no gate is left
        as it was under the old rules. What is reserved stays reserved.
        """
        if (settings, is_timed) == (self.settings, self.is_timed):
            return []
        refused = list[str]()
        with self._deciding() as now_ns:
            self.settings, self.is_timed = settings, is_timed
            self.referee = Referee(self, settings)
            for number in range(len(self._cards)):
                self.relay.arm(number, None)
            for name, container in self.containers.items():
                container.hang_up(Gate.CLOSED if is_timed else Gate.OPEN)
                uuids = tuple(card.uuid for card in container.cards)
                if is_timed and self.referee.admit(self._claims[name], uuids, now_ns):
                    refused.append(name)
        return refused

    async def run(self) -> None:
        """Beat until cancelled, then hang up on everybody."""
        thread = threading.Thread(target=self.relay.run, name="relay", daemon=True)
        thread.start()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.relay.fileno(), self._attend)
        try:
            while True:
                now_ns = time.monotonic_ns()
                for container in self.containers.values():
                    container.grants.beat(now_ns)
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            loop.remove_reader(self.relay.fileno())
            self.relay.stop()
            thread.join()
            for container in self.containers.values():
                container.close()
            if self._timer is not None:
                self._timer.cancel()

    # -- what containers tell ------------------------------------------------------------------

    def joined(self, key: int, container: str) -> None:
        """A process has been welcomed."""
        self._members[key] = container
        if self.is_timed:
            self.referee.join(key, container)

    def said(self, key: int, container: str, message: Message) -> None:
        """A process wants, yields or has drained a card."""
        if not self.is_timed:
            return
        card = self.containers[container].cards[message.card].uuid
        if message.kind == Kind.WANT:
            self.referee.want(key, card, self._now_ns)
        elif message.kind == Kind.YIELD:
            self.referee.yielded(key, card, self._now_ns)
        else:
            self.referee.drained(key, card, message.value, self._now_ns)

    def belongs(self, sock: socket.socket, container: str) -> bool:
        """Whether who connected may be of the container: nobody is who is known to be another's."""
        return self.pod_of_peer is None or self.pod_of_peer(sock) in ("", container)

    def left(self, key: int) -> None:
        """A process is gone."""
        del self._members[key]
        self.referee.leave(key, self._now_ns)

    # -- what the referee does -----------------------------------------------------------------

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        """Write one gate of a container; its generation then."""
        if self._retraced is not None:
            return self._retraced
        found = self.containers.get(container)
        return self.relay.set_gate(*found.gate_of(card), gate, deadline_ns) if found else 0

    def account(self, container: str, card: str) -> Tenant | None:
        """What the policy knows of a container on a card; None where time is not sliced."""
        found = self.referee.node.cards.get(card)
        return found.tenants.get(container) if found is not None else None

    # -- deciding ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[int]:
        """Hear what is new, change what is to be changed (the time is given), and say what comes.

        Within it nothing happens by itself. It takes a millisecond at most.
        """
        news = self.relay.take()
        self._now_ns = news.now_ns
        try:
            for act in news.acts:
                self._retrace(act)
            for said in news.said:
                self._hear(said)
            yield news.now_ns
            self.referee.settle(news.now_ns)
            for card in list(self.referee.changed):
                turn = self.referee.foresee(card, news.now_ns)
                self.relay.arm(self._number_of(card), self._order_of(card, turn))
        finally:
            self.relay.release()
            self._rearm()

    def _attend(self) -> None:
        with self._deciding():
            pass

    def _retrace(self, act: Act) -> None:
        """Have the referee do what the relay has done."""
        card = self._cards[act.card]
        if act.closed_ns:
            self._retraced = act.closed_generation
            self.referee.closed(card, act.closed_ns)
        if act.passed_ns:
            self._retraced = act.passed_generation
            self.referee.passed(card, act.passed_ns)
        self._retraced = None

    def _hear(self, said: Said) -> None:
        name = self._members.get(said.line, "")
        if name not in self.containers:
            return
        for card, wants in said.wants:
            self.said(said.line, name, Message(Kind.WANT if wants else Kind.YIELD, card))
        for card, generation in said.drained:
            self.said(said.line, name, Message(Kind.DRAINED, card, generation))
        if said.is_gone:
            self.containers[name].left(said.line)

    def _number_of(self, card: str) -> int:
        if card not in self._cards:
            self._cards.append(card)
        return self._cards.index(card)

    def _order_of(self, card: str, turn: Turn | None) -> Order | None:
        """The turn in the relay's words."""
        if turn is None:
            return None
        is_closed = self.referee.desks[card].closing is not None
        close_ns = 0 if is_closed else turn.close_ns
        holder = self.containers[turn.holder].gate_of(card)
        order = Order(holder, close_ns, turn.latest_ns)
        if turn.terms is None:
            return order
        run_ns = turn.terms.length_ns - turn.terms.early_ns if turn.terms.is_contended else 0
        following = self.containers[turn.terms.name].gate_of(card)
        return replace(order, following=following, run_ns=run_ns, is_renewal=turn.is_renewal)

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ns := self.referee.next_ns():
            wait_s = max(0, next_ns - time.monotonic_ns()) / 1e9
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._attend)

"""Lends memory of a card that no request covers to pods with a limit above their requests.

All pods of a card that state a limit may use the same amount above their requests, each at most up
to its limit. A pod that holds more than that, because another pod came to the card, keeps it: its
new allocations are refused, and the other pods are lent that much less. So every started pod can
allocate its request at any time; a pod that starts waits until its own request is free.
"""

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extender.api.demand import read_memory_limit
from extender.api.units import UnitError
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.container import MIB, Container, ContainerCard

#: Interval at which caps follow freed memory; changed rows are followed at once.
EVERY_S: Final = 1.0


@dataclass(slots=True, frozen=True)
class MemoryUse:
    """A pod's request, limit and use of a card. Without a limit, `limit_mib` is the request."""

    request_mib: int
    limit_mib: int
    held_mib: int = 0

    @property
    def lent_mib(self) -> int:
        """The memory that it holds above its request."""
        return max(0, min(self.held_mib, self.limit_mib) - self.request_mib)

    def cap_mib(self, level_mib: int) -> int:
        """Its cap if each pod may use `level_mib` above its request."""
        return self.request_mib + min(level_mib, self.limit_mib - self.request_mib)


def lending_level(unbooked_mib: int, pods: Iterable[MemoryUse]) -> int:
    """The most that every pod may use above its request, if `unbooked_mib` are lent in all.

    A pod that holds more keeps it. 0 if more is lent than there is.
    """
    pods = list(pods)

    def lent_mib(level_mib: int) -> int:
        return sum(max(pod.cap_mib(level_mib) - pod.request_mib, pod.lent_mib) for pod in pods)

    return max(0, bisect_right(range(unbooked_mib + 1), unbooked_mib, key=lent_mib) - 1)


def lent_caps(unbooked_mib: int, pods: Mapping[str, MemoryUse]) -> dict[str, int]:
    """The cap of each pod in MiB, by uid, if `unbooked_mib` of a card are lent.

    A pod that holds more than its equal part is capped at that part; the others have less until it
    has freed the difference.
    """
    part_mib = lending_level(unbooked_mib, [replace(pod, held_mib=0) for pod in pods.values()])
    level_mib = lending_level(unbooked_mib, pods.values())
    return {
        uid: pod.cap_mib(part_mib if pod.lent_mib > part_mib else level_mib)
        for uid, pod in pods.items()
    }


@dataclass(slots=True)
class Lender:
    """Sets the caps of pods that state a limit, if the node's pool lends memory.

    `limits` are in MiB of each card, by the pod's uid. Until the runtime has listed its containers
    (`is_listed`), a pod without an entry may have any limit. `started_uids` are pods that have
    started, so their requests were free.
    """

    agent: Agent
    limits: dict[str, int] = field(default_factory=dict)
    is_listed: bool = False
    started_uids: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Settle until cancelled: when rows change, and once a second."""
        while True:
            self.settle()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.agent.changes(), EVERY_S)

    def settle(self) -> None:
        """Set every cap by what pods hold now.

        Lower caps are set first; higher ones follow once the use under the lower caps is known.
        """
        agent = self.agent
        is_lending = agent.is_lending and self.is_listed
        self.started_uids &= agent.tenants.keys()
        caps = dict[tuple[str, str], int]()
        for uuid, pods in self._use().items():
            unbooked_mib = self._memory_mib(uuid) - self._booked_mib(uuid) if is_lending else 0
            caps |= {(uid, uuid): cap for uid, cap in lent_caps(unbooked_mib, pods).items()}
        known = [each for uid in agent.tenants if (each := agent.arbiter.containers.get(uid))]
        falling = [each for each in known if self._change(each, caps, is_falling=True)]
        for container in known if not falling else ():
            self._change(container, caps)

    def _change(
        self, container: Container, caps: Mapping[tuple[str, str], int], is_falling: bool = False
    ) -> bool:
        """Set the pod's lower caps, or all; return whether any changed."""
        cards = tuple(
            ContainerCard(card.uuid, min(cap, card.cap_mib) if is_falling else cap)
            for card in container.cards
            for cap in (caps[container.name, card.uuid],)
        )
        if cards == container.cards:
            return False
        container.set_cards(cards)
        return True

    def shortage(self, uid: str) -> str:
        """Why a pod that shares cards cannot start yet; empty if its request is free.

        A pod that has started before is never held back.
        """
        self.settle()
        if uid in self.started_uids or self.agent.is_running(uid):
            return ""
        for uuid, pods in self._use().items():
            if uid not in pods:
                continue
            started = [
                pod
                for other, pod in pods.items()
                if other in self.started_uids or self.agent.is_running(other)
            ]
            lent_mib = sum(pod.lent_mib for pod in started)
            requests_mib = pods[uid].request_mib + sum(pod.request_mib for pod in started)
            missing_mib = min(lent_mib, requests_mib + lent_mib - self._memory_mib(uuid))
            if missing_mib > 0:
                return (
                    f"waits for {missing_mib} of its {pods[uid].request_mib} MiB of {uuid}: pods"
                    f" with a gpu-memory-limit still hold {lent_mib} MiB above their requests there"
                )
        self.started_uids.add(uid)
        return ""

    def bounds(self) -> list[SharingPod]:
        """All pods, with the most that they may hold of each card: the cap, or more if lent."""
        use, found = self._use(), list[SharingPod]()
        for uid, tenant in self.agent.tenants.items():
            cards = []
            for card in self.agent.arbiter.containers[uid].cards:
                pod = use[card.uuid][uid]
                kept_mib = pod.request_mib + pod.lent_mib
                cards.append(replace(card, cap_mib=max(card.cap_mib, kept_mib)))
            found.append(replace(tenant, cards=tuple(cards)))
        return found

    def _use(self) -> dict[str, dict[str, MemoryUse]]:
        """The pods' use of each card, by the card's UUID and the pod's uid."""
        found = dict[str, dict[str, MemoryUse]]()
        for uid, tenant in self.agent.tenants.items():
            container = self.agent.arbiter.containers.get(uid)
            table = container.table if container is not None else None
            for at, card in enumerate(tenant.cards):
                held_mib = -(-table.held_bytes(at) // MIB) if table is not None else 0
                unknown_mib = 0 if self.is_listed else self._memory_mib(card.uuid)
                limit_mib = max(card.cap_mib, self.limits.get(uid, unknown_mib))
                use = MemoryUse(card.cap_mib, limit_mib, held_mib)
                found.setdefault(card.uuid, {})[uid] = use
        return found

    def _memory_mib(self, uuid: str) -> int:
        return next((each.memory_mib for each in self.agent.devices if each.uuid == uuid), 0)

    def _booked_mib(self, uuid: str) -> int:
        """The memory of a card that rows promise, also to pods that have not started."""
        indices = {each.index for each in self.agent.devices if each.uuid == uuid}
        return sum(
            card.memory_mib
            for row in self.agent.rows
            for card in row.cards
            if card.index in indices
        )


def limit_of(annotations: Mapping[str, str]) -> int:
    """The limit in MiB that a pod's annotations state; 0 if there is no valid one."""
    try:
        return read_memory_limit(annotations)
    except UnitError:
        return 0

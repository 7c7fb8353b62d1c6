"""Compares the driver's figures with the tables and the ledger, once a second.

A pod is charged for the memory of its processes that the library did not count: contexts, modules,
calls without a hook. Breaches are: a process that uses a shared card without the library, a pod
that stays above its cap, and a pod on a card that the ledger gave to other pods.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.reasons import Reason
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.protocol.pages import Table

#: A pod is reported when it is above its cap by more than this part of it.
SLACK_PERCENT: Final = 2
#: It is evicted for that only above a further margin, for memory that no hook can refuse: for each
#: process, the context beyond its charge, and modules that are loaded late.
MARGIN_MIB: Final = 1024
#: How long a breach must last: the driver sees a process before it has sent HELLO, and after a
#: restart of the agent every process sends HELLO again.
PATIENCE_S: Final = 3.0
_MIB: Final = 1 << 20

_NONE: Final[Mapping[str, Sequence[int]]] = {}

#: Bytes of a card's memory by pid, by the card's UUID.
Sight = Mapping[str, Mapping[int, int]]


@dataclass(slots=True, frozen=True)
class Breach:
    """A breach of a pod's bounds."""

    uid: str
    reason: Reason
    message: str
    #: Whether the pod may be evicted for it, because no honest program causes it.
    is_evictable: bool = True


@dataclass(slots=True, frozen=True)
class CardUsers:
    """The pods that may use each card: those that share it, with their tables, or its only pod."""

    tenants: Iterable[SharingPod]
    tables: Mapping[str, Table] = field(default_factory=dict)
    whole: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def users(self) -> Mapping[str, set[str]]:
        """Uids of the pods that may use a card, by its UUID; cards without a pod are left out."""
        found = dict[str, set[str]]()
        for tenant in self.tenants:
            for card in tenant.cards:
                found.setdefault(card.uuid, set()).add(tenant.uid)
        for uid, uuids in self.whole.items():
            for uuid in uuids:
                found.setdefault(uuid, set()).add(uid)
        return found


@dataclass(slots=True)
class Auditor:
    """Finds breaches. `pod_of` returns the uid of the pod of a host process, or the empty string.

    `seen` is the pods' memory in the driver's last figures, in bytes by (uid, card's UUID).
    """

    pod_of: Callable[[int], str]
    #: MiB charged to a process for each context.
    context_mib: int = 0
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    #: By the same keys: the last estimate, and the current charge.
    _estimates: dict[tuple[str, str], int] = field(default_factory=dict)
    _charged: dict[tuple[str, str], int] = field(default_factory=dict)
    _since: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def look(
        self,
        ledger: CardUsers,
        sight: Sight,
        now_s: float,
        used: Mapping[str, Sequence[int]] = _NONE,
    ) -> list[Breach]:
        """Charge uncounted memory, and return the breaches that have lasted for `PATIENCE_S`.

        `used` are the tables' figures by uid and card before the driver was asked: memory that is
        freed meanwhile must not count as unseen by the hooks. Cards that are not in `sight` are
        skipped.
        """
        joined = {uid: {pid for _, pid in table.owners()} for uid, table in ledger.tables.items()}
        claimed = {pid: uid for uid, pids in joined.items() for pid in pids}
        # The kernel's answer takes precedence: a tenant may write anything into its own table.
        pods = {
            pid: self.pod_of(pid) or claimed.get(pid, "") for pids in sight.values() for pid in pids
        }
        found = list[tuple[str, Breach]]()
        self.seen = {}
        for tenant in ledger.tenants:
            table = ledger.tables.get(tenant.uid)
            for at, card in enumerate(tenant.cards):
                if card.uuid not in sight:
                    continue
                mine = {pid: n for pid, n in sight[card.uuid].items() if pods[pid] == tenant.uid}
                self.seen[tenant.uid, card.uuid] = sum(mine.values())
                if table is not None:
                    counted = max(table.used_bytes(at), *used.get(tenant.uid, (0,))[at : at + 1])
                    n_ours = sum(pid in joined[tenant.uid] for pid in mine)
                    key = tenant.uid, card.uuid
                    table.set_overhead(
                        at, self._overhead(key, sum(mine.values()) - counted, n_ours)
                    )
                # Other pods' tables do not count for this one.
                found += _unprotected(tenant, card, mine, joined.get(tenant.uid, set()))
                found += _over_cap(tenant, card, mine)
        for uuid, users in ledger.users().items():
            found += _not_given(uuid, users, sight.get(uuid, {}), pods)
        return self._lasting(found, now_s)

    def _overhead(self, key: tuple[str, str], beyond: int, n_processes: int) -> int:
        """The charge beyond what was counted; it changes only as far as two checks agree."""
        # A context may be smaller than its charge; counted memory that is not allocated yet
        # (managed memory, for instance) stays charged.
        estimate = max(beyond, -n_processes * self.context_mib * _MIB)
        last = self._estimates.get(key, estimate)
        self._estimates[key] = estimate
        low, high = sorted((last, estimate))
        self._charged[key] = min(max(self._charged.get(key, 0), low), high)
        return self._charged[key]

    def _lasting(self, found: Iterable[tuple[str, Breach]], now_s: float) -> list[Breach]:
        """The breaches that were found in every check of the last `PATIENCE_S`."""
        keyed = {(each.uid, each.reason, uuid): each for uuid, each in found}
        self._since = {key: self._since.get(key, now_s) for key in keyed}
        return [each for key, each in keyed.items() if now_s - self._since[key] >= PATIENCE_S]


def _unprotected(
    tenant: SharingPod, card: ContainerCard, mine: Mapping[int, int], joined: Container[int]
) -> Iterable[tuple[str, Breach]]:
    strangers = [pid for pid in mine if pid not in joined]
    if strangers:
        pod_name = f"{tenant.namespace}/{tenant.pod}"
        what = f"{pod_name}: process {strangers[0]} uses {card.uuid} without the library"
        yield card.uuid, Breach(tenant.uid, Reason.GPU_UNPROTECTED, what)


def _over_cap(
    tenant: SharingPod, card: ContainerCard, mine: Mapping[int, int]
) -> Iterable[tuple[str, Breach]]:
    used_mib = sum(mine.values()) // _MIB
    is_evictable = used_mib > card.cap_mib + MARGIN_MIB * len(mine)
    if used_mib * 100 > card.cap_mib * (100 + SLACK_PERCENT):
        pod_name = f"{tenant.namespace}/{tenant.pod}"
        what = f"{pod_name}: has {used_mib} MiB of {card.uuid}, may have {card.cap_mib}"
        yield card.uuid, Breach(tenant.uid, Reason.GPU_MEMORY_OVER_CAP, what, is_evictable)


def _not_given(
    uuid: str, users: set[str], seen: Mapping[int, int], pods: Mapping[int, str]
) -> Iterable[tuple[str, Breach]]:
    """Pods on a card that was given to other pods. Processes outside pods are ignored."""
    for pid in seen:
        if pods[pid] and pods[pid] not in users:
            what = f"process {pid} uses {uuid}, which is given to others"
            yield uuid, Breach(pods[pid], Reason.GPU_NOT_GIVEN, what)

"""Compares what the driver says with what the tables and the ledger say, once a second.

What a pod's processes have beyond what the library counted (contexts, modules, calls no hook saw)
is charged to the pod. Found are: a process of a pod that uses a shared card without the library, a
pod that stays above its cap, and a pod that uses a card that the ledger gave to others.
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
#: It is evicted for that only above what no hook can refuse: for each process, the context beyond
#: its charge, and modules that are loaded late.
MARGIN_MIB: Final = 1024
#: How long something must go on: a process is seen by the driver before it has said hello, and
#: after a restart of the agent every process says HELLO again.
PATIENCE_S: Final = 3.0
_MIB: Final = 1 << 20

_NONE: Final[Mapping[str, Sequence[int]]] = {}

#: Bytes of a card's memory by pid, by the card's UUID.
Sight = Mapping[str, Mapping[int, int]]


@dataclass(slots=True, frozen=True)
class Breach:
    """A pod that breaks its bounds."""

    uid: str
    reason: Reason
    message: str
    #: Whether the pod may be evicted for it: an honest program cannot come to this.
    is_evictable: bool = True


@dataclass(slots=True, frozen=True)
class CardUsers:
    """The pods that may use each card: those that share it, with tables, or the only one."""

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
    """`pod_of` tells the uid of the pod that a process of the host belongs to, or nothing.

    `seen` is what the driver last said that pods had, in bytes by (uid, card's UUID).
    """

    pod_of: Callable[[int], str]
    #: What a process is charged for each context.
    context_mib: int = 0
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    #: By the same: what the last look would have charged, and what is charged.
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
        """Charge what was not counted, and report pods that have broken bounds for long enough.

        `used` is what the tables said by uid and card before the driver was asked: a free while it
        answers must not look like memory that no hook saw. Of a card that is not in `sight` nothing
        is said and nothing changed.
        """
        joined = {uid: {pid for _, pid in table.owners()} for uid, table in ledger.tables.items()}
        claimed = {pid: uid for uid, pids in joined.items() for pid in pids}
        # The kernel's word first: a tenant may write what it likes into its own table.
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
                # What others have written into theirs is nothing to this one.
                found += _unprotected(tenant, card, mine, joined.get(tenant.uid, set()))
                found += _over_cap(tenant, card, mine)
        for uuid, users in ledger.users().items():
            found += _not_given(uuid, users, sight.get(uuid, {}), pods)
        return self._lasting(found, now_s)

    def _overhead(self, key: tuple[str, str], beyond: int, n_processes: int) -> int:
        """What to charge beyond what was counted: it moves only as far as two looks agree."""
        # A context may be smaller than its charge; memory that was counted and is not there yet
        # (managed, for instance) stays charged.
        estimate = max(beyond, -n_processes * self.context_mib * _MIB)
        last = self._estimates.get(key, estimate)
        self._estimates[key] = estimate
        low, high = sorted((last, estimate))
        self._charged[key] = min(max(self._charged.get(key, 0), low), high)
        return self._charged[key]

    def _lasting(self, found: Iterable[tuple[str, Breach]], now_s: float) -> list[Breach]:
        """Those that were found ever since `PATIENCE_S` ago."""
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
    """Pods on a card that others have. Processes of the host itself are the host's business."""
    for pid in seen:
        if pods[pid] and pods[pid] not in users:
            what = f"process {pid} uses {uuid}, which is given to others"
            yield uuid, Breach(pods[pid], Reason.GPU_NOT_GIVEN, what)

"""The auditor's projection of each object: the fields that the invariants need.

It follows the documented format of the objects and parses GPU requests itself. It does not use
functions of `extender`, so that an error there shows as a disagreement.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from extender.api import names
from extender.api.kinds import Device, Row

MILLI: Final = 1000
GROUP_LABELS: Final = (
    names.LABEL_POD_GROUP,
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
)
#: Reasons of the condition DisruptionTarget that mark an eviction.
EVICTED: Final = ("EvictionByEvictionAPI", "PreemptionByScheduler")
SCALE: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
}


class Asked(Struct, frozen=True, gc=False):
    """A pod's request: cards, and of each card milli, or MiB where `milli` is 0."""

    devices: int
    milli: int
    mib: int


UNREADABLE: Final = Asked(0, 0, 0)


class Share(Struct, frozen=True, gc=False, order=True):
    """A share of one card, from a row or a cards annotation."""

    index: int
    milli: int
    mib: int


class PodSeen(Struct, frozen=True, gc=False, kw_only=True):
    """A pod. `asked` None: it has no GPUs, or none of Ballast's; `cards` None: no valid annotation.

    `eviction`: the reason of its eviction mark, before or after its deletion; `left_after_s`:
    seconds from the mark to the deletion, 0 if unknown.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    gates: tuple[str, ...] = ()
    phase: str = ""
    is_leaving: bool = False
    eviction: str = ""
    left_after_s: int = 0
    asked: Asked | None = None
    has_cards: bool = False
    cards: tuple[Share, ...] | None = None
    plan: str = ""
    group: str = ""
    min_member: int = 0
    project: str = ""
    priority: int = 0
    preemptibility: str = ""
    owner: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_evicted(self) -> bool:
        return bool(self.eviction) and self.is_leaving

    @property
    def is_preemptible(self) -> bool:
        return names.is_preemptible(self.priority, self.preemptibility)


class RowSeen(Struct, frozen=True, gc=False, kw_only=True):
    """A ledger row. `keeps_for`: the owner of the moved pod for whose successor it holds cards."""

    uid: str
    key: str
    project: str
    cards: tuple[Share, ...]
    state: str
    epoch: int
    non_preemptible: bool
    keeps_for: str = ""

    @property
    def milli(self) -> int:
        return sum(share.milli for share in self.cards)


class LedgerSeen(Struct, frozen=True, gc=False):
    """A GpuNode: its rows, and its cards by index."""

    name: str
    rows: tuple[RowSeen, ...] = ()
    devices: Mapping[int, Device] = field(default_factory=dict)


class NodeSeen(Struct, frozen=True, gc=False):
    name: str
    labels: Mapping[str, str]
    is_schedulable: bool


class GroupSeen(Struct, frozen=True, gc=False):
    namespace: str
    name: str
    min_member: int


class QueueSeen(Struct, frozen=True, gc=False, kw_only=True):
    """A GpuProject (`department` set) or a GpuDepartment; milli-GPU by node pool."""

    name: str
    department: str = ""
    quota: Mapping[str, int]
    fair_share: Mapping[str, int]
    allocated: Mapping[str, int]


class PoolSeen(Struct, frozen=True, gc=False):
    name: str
    selector: Mapping[str, str]


class EventSeen(Struct, frozen=True, gc=False):
    """An event about a pod, with its reason."""

    uid: str
    reason: str


Seen = PodSeen | LedgerSeen | NodeSeen | GroupSeen | QueueSeen | PoolSeen | EventSeen


def see(kind: str, value: msgspec.Raw) -> Seen | None:
    """The projection of a stored object; None for objects that no invariant needs.

    Raises ValueError if the object is not JSON or lacks metadata.
    """
    return READERS[kind](msgspec.json.decode(bytes(value)))


def _pod(obj: Any) -> PodSeen:
    meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    text = notes.get(names.ANNOTATION_CARDS)
    mark: Mapping[str, Any] = next(
        (
            condition
            for condition in status.get("conditions") or ()
            if condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        ),
        {},
    )
    target = mark.get("reason", "")
    minimum = notes.get(names.ANNOTATION_MIN_MEMBER, "")
    return PodSeen(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        node=spec.get("nodeName", ""),
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        phase=status.get("phase", ""),
        is_leaving="deletionTimestamp" in meta,
        eviction=target if target in EVICTED else "",
        left_after_s=_left_after_s(meta, mark),
        asked=_asked(notes, spec) if _is_ours(labels, spec) else None,
        has_cards=text is not None,
        cards=parse_cards(text) if text is not None else None,
        plan=notes.get(names.ANNOTATION_PLAN, ""),
        group=next((labels[key] for key in GROUP_LABELS if labels.get(key)), ""),
        min_member=int(minimum) if minimum.isdecimal() else 0,
        project=labels.get(names.LABEL_PROJECT, ""),
        priority=spec.get("priority") or 0,
        preemptibility=labels.get(names.LABEL_PREEMPTIBILITY, ""),
        owner=next(
            (ref["uid"] for ref in meta.get("ownerReferences") or () if ref.get("controller")), ""
        ),
    )


def _left_after_s(meta: Any, mark: Any) -> int:
    """Seconds from the mark to the deletion, both by the API server's clock."""
    ends, marked = meta.get("deletionTimestamp"), mark.get("lastTransitionTime")
    if ends is None or marked is None:
        return 0
    grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    told = datetime.fromisoformat(ends) - grace
    return max(0, int((told - datetime.fromisoformat(marked)).total_seconds()))


def _is_ours(labels: Mapping[str, str], spec: Any) -> bool:
    """Whether Ballast manages the pod's cards: not if it belongs to no project, since the webhook
    leaves such pods to the cluster's own scheduler.
    """
    return (
        names.LABEL_PROJECT in labels
        or spec.get("schedulerName") == names.SCHEDULER_NAME
        or _resource(spec, names.GPU_MILLI) > 0
    )


def _asked(notes: Mapping[str, str], spec: Any) -> Asked | None:
    """The pod's request; `UNREADABLE`, which equals no row, if it is invalid."""
    try:
        return _read_asked(notes, spec)
    except (ValueError, ArithmeticError, KeyError):
        return UNREADABLE


def _read_asked(notes: Mapping[str, str], spec: Any) -> Asked | None:
    devices = int(notes.get("gpu-fraction-num-devices", "1"))
    if fraction := _note(notes, "gpu-fraction"):
        return Asked(devices, int(Decimal(fraction) * MILLI), 0)
    if memory := _note(notes, "gpu-memory"):
        return Asked(devices, 0, int(memory))
    whole = _resource(spec, names.NVIDIA_GPU)
    if whole:
        return Asked(whole, MILLI, 0)
    milli = _resource(spec, names.GPU_MILLI)
    if milli:
        return Asked(max(1, milli // MILLI), min(milli, MILLI), 0)
    return None


def _note(notes: Mapping[str, str], key: str) -> str:
    """The annotation, with or without our prefix."""
    return notes.get(f"ballast.dev/{key}") or notes.get(key, "")


def _resource(spec: Any, name: str) -> int:
    def of(container: Any) -> int:
        asked = container.get("resources") or {}
        for listed in (asked.get("requests"), asked.get("limits")):
            if listed and name in listed:
                return quantity(listed[name])
        return 0

    beside = most = 0
    for container in spec.get("initContainers") or ():
        most = max(most, beside + of(container))
        # A side-car stays when the next container starts.
        beside += of(container) if container.get("restartPolicy") == "Always" else 0
    return max(most, beside + sum(map(of, spec.get("containers") or ())))


def quantity(value: int | str) -> int:
    """A Kubernetes quantity as an integer, rounded down; the API server writes 1000 as "1k"."""
    text = str(value)
    number = text.rstrip("KMGkmi")
    return int(Decimal(number) * SCALE[text[len(number) :]])


def parse_cards(text: str) -> tuple[Share, ...] | None:
    """The shares of a cards annotation, in order of index; None if it is invalid."""
    shares = []
    for part in text.split(","):
        numbers = part.split(":")
        if len(numbers) != 3 or not all(n.isascii() and n.isdecimal() for n in numbers):
            return None
        shares.append(Share(*(int(number) for number in numbers)))
    return tuple(sorted(shares))


def _gpus(text: object) -> int:
    """Milli-GPU of a number of GPUs; 0 if it is not a number."""
    try:
        return int(Decimal(str(text)) * MILLI)
    except InvalidOperation:
        return 0


def _ledger(obj: Any) -> LedgerSeen:
    rows = msgspec.convert(obj.get("spec", {}).get("rows") or [], list[Row])
    devices = msgspec.convert((obj.get("status") or {}).get("devices") or [], list[Device])
    seen = tuple(
        RowSeen(
            uid=row.uid,
            key=f"{row.namespace}/{row.name}",
            project=row.project,
            cards=tuple(sorted(Share(c.index, c.milli, c.memory_mib) for c in row.cards)),
            state=row.state,
            epoch=row.epoch,
            non_preemptible=row.non_preemptible,
            keeps_for=row.move.owner if row.move else "",
        )
        for row in rows
    )
    return LedgerSeen(obj["metadata"]["name"], seen, {card.index: card for card in devices})


def _node(obj: Any) -> NodeSeen:
    meta = obj["metadata"]
    is_cordoned = obj.get("spec", {}).get("unschedulable", False)
    return NodeSeen(meta["name"], meta.get("labels") or {}, not is_cordoned)


def _group(obj: Any) -> GroupSeen:
    meta = obj["metadata"]
    return GroupSeen(meta["namespace"], meta["name"], obj.get("spec", {}).get("minMember", 1))


def _queue(obj: Any) -> QueueSeen:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    used = status.get("nodePools") or ()
    return QueueSeen(
        name=obj["metadata"]["name"],
        department=spec.get("department", ""),
        quota={
            pool["name"]: _gpus((pool.get("gpu") or {}).get("quota", 0))
            for pool in spec.get("nodePools") or ()
        },
        fair_share={pool["name"]: _gpus(pool.get("fairShare", 0)) for pool in used},
        allocated={pool["name"]: _gpus(pool.get("allocated", 0)) for pool in used},
    )


def _pool(obj: Any) -> PoolSeen:
    return PoolSeen(obj["metadata"]["name"], (obj.get("spec") or {}).get("nodeSelector") or {})


def _event(obj: Any) -> EventSeen | None:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    if about.get("kind") != "Pod":
        return None
    return EventSeen(about.get("uid", ""), obj.get("reason", ""))


READERS: Final[Mapping[str, Callable[[Any], Seen | None]]] = {
    "Pod": _pod,
    "GpuNode": _ledger,
    "Node": _node,
    "GpuPodGroup": _group,
    "GpuProject": _queue,
    "GpuDepartment": _queue,
    "GpuNodePool": _pool,
    "Event": _event,
}

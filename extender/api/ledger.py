"""The ledger: GpuNode, which says which pod holds which share of which card of one node.

Rows are written by programs, so they are integers: milli and MiB (docs/ledger.md).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from extender.api.names import DEFAULT_POOL, LABEL_NODE_POOL
from extender.api.objects import Condition, ObjectMeta
from extender.api.units import format_gpus

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Natural = Annotated[int, Meta(ge=0)]
_CARD: Final = re.compile(r"([0-9]{1,2}):([1-9][0-9]{0,3}):([0-9]{1,9})", re.ASCII)


class CardShare(Struct, rename={"memory_mib": "memoryMiB"}, frozen=True, gc=False):
    """What a pod holds of one card of its node."""

    index: Annotated[int, Meta(ge=0, le=63)]
    milli: Annotated[int, Meta(ge=1, le=1000)]
    memory_mib: Natural


def write_cards(cards: Iterable[CardShare]) -> str:
    """Cards as in the annotation `ballast.dev/cards`: `<index>:<milli>:<MiB>`, comma separated."""
    return ",".join(f"{card.index}:{card.milli}:{card.memory_mib}" for card in cards)


def read_cards(text: str) -> tuple[CardShare, ...]:
    """Cards as `write_cards` writes them; empty if not understood."""
    parts = text.split(",") if text else []
    cards = []
    for part in parts:
        found = _CARD.fullmatch(part)
        if found is None:
            return ()
        cards.append(CardShare(int(found[1]), int(found[2]), int(found[3])))
    return tuple(cards)


def guaranteed_milli(request_milli: int, cards: Iterable[CardShare]) -> int:
    """The share of compute time that is guaranteed on each card: never above what is held of it.

    Rows of one card hold at most all of it, so what is guaranteed on it never exceeds it either.
    """
    return min((request_milli, *(card.milli for card in cards)))


RowState = Literal["nominated", "reserved", "bound"]
#: Kubernetes' words for what kubelet does with a container that has ended.
RestartPolicy = Literal["Always", "OnFailure", "Never"]


class MoveHold(
    Struct,
    rename={"cpu_milli": "cpuMilli", "memory_mib": "memoryMiB", "gone_at": "goneAt"},
    kw_only=True,
    frozen=True,
    gc=False,
):
    """The successor for which a moved pod's row holds a place on the next node.

    `owner` is the UID of the pod's controller, which makes the successor. The rest is what the pod
    asks of a node besides cards: it identifies the successor, and it is kept free for it. `gone_at`
    is in unix seconds.
    """

    owner: Name
    cpu_milli: Natural = 0
    memory_mib: Natural = 0
    gone_at: Natural = 0


def plan_text(epoch: int, node: str) -> str:
    """How a pod's annotation names the plan by which it goes to the node."""
    return f"{epoch} {node}"


class Row(
    Struct,
    rename={
        "compute_request_milli": "computeRequestMilli",
        "compute_limit_milli": "computeLimitMilli",
        "non_preemptible": "nonPreemptible",
        "has_floor": "hasFloor",
        "reserved_at": "reservedAt",
        "restart_policy": "restartPolicy",
    },
    kw_only=True,
    frozen=True,
    omit_defaults=True,
    gc=False,
):
    """One pod's hold on one node's cards. The row, not the pod, is what the node enforces.

    `nominated` keeps a place until victims are gone, `reserved` may be bound or is, `bound` is.
    """

    uid: Name
    namespace: Name
    name: Name
    project: str = ""
    group: Annotated[str, Meta(description="Name of the pod's GpuPodGroup; empty without one.")] = (
        ""
    )
    cards: list[CardShare]
    compute_request_milli: Natural = 0
    compute_limit_milli: Natural = 1000
    non_preemptible: bool = False
    has_floor: Annotated[
        bool,
        Meta(description="Whether the pod's owner keeps replicas: kube-scheduler preempts none."),
    ] = False
    restart_policy: Annotated[
        RestartPolicy,
        Meta(description="The pod's; Never if one of its containers has that."),
    ] = "Never"
    device: Annotated[
        str,
        Meta(
            description="The card that kube-scheduler allocated to the claim of a pod which shares"
            " it: driver, pool and device. `cards` names its index from then on."
        ),
    ] = ""
    state: RowState
    epoch: Annotated[int, Meta(description="The plan that made the row; 0 for a direct pod.")] = 0
    reserved_at: Annotated[int, Meta(description="Unix seconds when the row was written.")] = 0
    counted: Annotated[
        dict[str, int], Meta(description="MIG instances and the like, by resource.")
    ] = field(default_factory=dict)
    move: Annotated[
        MoveHold | None, Meta(description="On the nominated row of a pod that leaves another node.")
    ] = None

    @property
    def identity(self) -> tuple[str, int, int]:
        """Tells this row from any other that its pod had or will have; its state may move on."""
        return self.uid, self.epoch, self.reserved_at

    def plan_on(self, node: str) -> str:
        """How its pod's annotation names the plan of the row on this node."""
        return plan_text(self.epoch, node)

    def revocation_on(self, node: str) -> str:
        """How its pod's annotation names the row on this node once the row is revoked."""
        return f"{node} {self.epoch} {self.reserved_at}"

    @property
    def milli(self) -> int:
        """Milli-GPU held over all cards."""
        return sum(card.milli for card in self.cards)


class GpuNodeSpec(Struct, rename="camel", kw_only=True):
    """The rows of the node, and their sums `pods` and `used`, which are written with them.

    `changedAt` is the Unix second of the last write: until then, a row that it removed held its
    cards.
    """

    rows: list[Row] = field(default_factory=list)
    pods: Natural | UnsetType = UNSET
    used: str | UnsetType = UNSET
    changed_at: Natural = 0

    @classmethod
    def of(cls, rows: Sequence[Row], changed_at: int = 0) -> "GpuNodeSpec":
        """These rows and their sums; a nominated row holds nothing yet."""
        held = [row for row in rows if row.state != "nominated"]
        used = format_gpus(sum(row.milli for row in held))
        return cls(rows=list(rows), pods=len(held), used=used, changed_at=changed_at)


class Device(
    Struct, rename={"memory_mib": "memoryMiB"}, kw_only=True, omit_defaults=True, gc=False
):
    """One card as the node agent sees it."""

    index: Annotated[int, Meta(ge=0, le=63)]
    memory_mib: Natural
    uuid: str = ""
    model: str = ""
    health: Literal["Healthy", "Unhealthy"] = "Healthy"
    device: Annotated[
        str, Meta(description="Driver, pool and device, where a DRA driver publishes the card.")
    ] = ""


class ForeignHold(Struct, kw_only=True, frozen=True, gc=False):
    """What a pod without a row holds of the node: `gpus` whole cards, which may be any, and shares
    of certain cards."""

    uid: Name
    namespace: Name
    name: Name
    gpus: Annotated[int, Meta(ge=0, le=64)]
    cards: list[CardShare] = field(default_factory=list)


class GpuNodeStatus(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The cards that the node has, and how many of them pods without a row hold."""

    devices: list[Device] = field(default_factory=list)
    cards: Natural = 0
    healthy_cards: Natural = 0
    foreign: Annotated[
        list[ForeignHold],
        Meta(
            max_length=64,
            description="Pods that hold cards of the node without a row: another scheduler placed"
            " them. Written by the controller.",
        ),
    ] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class GpuNode(Struct, rename="camel", kw_only=True):
    """The ledger of one node: which pod holds which share of which card. Named as the Node."""

    metadata: ObjectMeta
    spec: GpuNodeSpec = field(default_factory=GpuNodeSpec)
    status: GpuNodeStatus = field(default_factory=GpuNodeStatus)

    @property
    def pool(self) -> str:
        """The node pool of the node: as its label says, else the default pool."""
        return self.metadata.label(LABEL_NODE_POOL) or DEFAULT_POOL

    @property
    def n_foreign(self) -> int:
        """Whole cards that pods without a row hold; never more than the node has."""
        return min(sum(hold.gpus for hold in self.status.foreign), len(self.status.devices))

    @property
    def foreign_shares(self) -> list[CardShare]:
        """Shares of cards that pods without a row hold."""
        return [share for hold in self.status.foreign for share in hold.cards]


def devices_status(devices: Sequence[Device]) -> dict[str, object]:
    """The part of a GpuNode's status that tells its cards, as it is written."""
    n_healthy = sum(device.health == "Healthy" for device in devices)
    return {"devices": list(devices), "cards": len(devices), "healthyCards": n_healthy}

"""The ledger: GpuNode, with a row for each pod that holds shares of cards of the node.

Programs write the rows, in integers: milli and MiB (docs/ledger.md).
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
    """The share of one card that a pod holds."""

    index: Annotated[int, Meta(ge=0, le=63)]
    milli: Annotated[int, Meta(ge=1, le=1000)]
    memory_mib: Natural


def write_cards(cards: Iterable[CardShare]) -> str:
    """Cards as in the annotation `ballast.dev/cards`: `<index>:<milli>:<MiB>`, comma separated."""
    return ",".join(f"{card.index}:{card.milli}:{card.memory_mib}" for card in cards)


def read_cards(text: str) -> tuple[CardShare, ...]:
    """The cards of a text that `write_cards` wrote; empty for any other text."""
    parts = text.split(",") if text else []
    cards = []
    for part in parts:
        found = _CARD.fullmatch(part)
        if found is None:
            return ()
        cards.append(CardShare(int(found[1]), int(found[2]), int(found[3])))
    return tuple(cards)


def guaranteed_milli(request_milli: int, cards: Iterable[CardShare]) -> int:
    """The guaranteed share of compute time on each card: at most the share of the card.

    Rows hold at most 1000 milli of a card, so the guarantees on a card cannot exceed 1000 either.
    """
    return min((request_milli, *(card.milli for card in cards)))


RowState = Literal["nominated", "reserved", "bound"]
#: Kubernetes' restart policies of a container.
RestartPolicy = Literal["Always", "OnFailure", "Never"]


class MoveHold(
    Struct,
    rename={"cpu_milli": "cpuMilli", "memory_mib": "memoryMiB", "gone_at": "goneAt"},
    kw_only=True,
    frozen=True,
    gc=False,
):
    """The successor of a moved pod, for which the row reserves cards on the new node.

    `owner` is the UID of the controller that creates the successor. The requests for CPU and memory
    identify the successor and are reserved for it too.
    """

    owner: Name
    cpu_milli: Natural = 0
    memory_mib: Natural = 0
    gone_at: Natural = 0


def plan_text(epoch: int, node: str) -> str:
    """The value of a pod's annotation `ballast.dev/plan`."""
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
    """The cards of the node that one pod holds. The node agent enforces the row, not the pod.

    A `nominated` row keeps cards for a pod until its victims are gone. The pod of a `reserved` row
    may be bound or is bound; the pod of a `bound` row is bound.
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
        Meta(
            description="True: the pod's owner keeps a number of replicas (ballast.dev/floor), so"
            " kube-scheduler does not preempt the pod."
        ),
    ] = False
    restart_policy: Annotated[
        RestartPolicy,
        Meta(description="Restart policy of the pod; Never if one of its containers has it."),
    ] = "Never"
    device: Annotated[
        str,
        Meta(
            description="Driver, pool and device of the shared card that kube-scheduler allocated"
            " to the pod's claim. From then on, `cards` has the index of this card."
        ),
    ] = ""
    state: RowState
    epoch: Annotated[
        int,
        Meta(description="Number of the plan that made the row; 0 for a pod placed without one."),
    ] = 0
    reserved_at: Annotated[
        int, Meta(description="Unix time in seconds when the row was written.")
    ] = 0
    counted: Annotated[
        dict[str, int],
        Meta(description="Number of MIG instances that the pod holds, by resource name."),
    ] = field(default_factory=dict)
    move: Annotated[
        MoveHold | None,
        Meta(
            description="The successor of a pod that is moved to this node from another; only on a"
            " nominated row."
        ),
    ] = None

    @property
    def key(self) -> str:
        """`namespace/name` of its pod."""
        return f"{self.namespace}/{self.name}"

    @property
    def identity(self) -> tuple[str, int, int]:
        """Identifies this row among all rows of its pod, also after its state changes."""
        return self.uid, self.epoch, self.reserved_at

    def plan_on(self, node: str) -> str:
        """The value of its pod's annotation `ballast.dev/plan` while the row is on this node."""
        return plan_text(self.epoch, node)

    def revocation_on(self, node: str) -> str:
        """The value of its pod's annotation `ballast.dev/revoked` once the row is revoked."""
        return f"{node} {self.epoch} {self.reserved_at}"

    @property
    def milli(self) -> int:
        """Milli-GPU held over all cards."""
        return sum(card.milli for card in self.cards)


class GpuNodeSpec(Struct, rename="camel", kw_only=True):
    """The rows of the node, with their sums `pods` and `used`.

    A row that the last write removed held its cards until `changedAt`.
    """

    rows: list[Row] = field(default_factory=list)
    pods: Natural | UnsetType = UNSET
    used: str | UnsetType = UNSET
    changed_at: Natural = 0

    @classmethod
    def of(cls, rows: Sequence[Row], changed_at: int = 0) -> "GpuNodeSpec":
        """The spec with these rows and their sums; a nominated row does not count."""
        held = [row for row in rows if row.state != "nominated"]
        used = format_gpus(sum(row.milli for row in held))
        return cls(rows=list(rows), pods=len(held), used=used, changed_at=changed_at)


class Device(
    Struct, rename={"memory_mib": "memoryMiB"}, kw_only=True, omit_defaults=True, gc=False
):
    """A card of the node, as the node agent reports it."""

    index: Annotated[int, Meta(ge=0, le=63)]
    memory_mib: Natural
    uuid: str = ""
    model: str = ""
    health: Literal["Healthy", "Unhealthy"] = "Healthy"
    device: Annotated[
        str,
        Meta(
            description="Driver, pool and device of the card; empty unless a DRA driver publishes"
            " it."
        ),
    ] = ""


class ForeignHold(Struct, kw_only=True, frozen=True, gc=False):
    """The cards that a pod without a row holds: `gpus` whole cards, with unknown indices, and
    shares of the known `cards`."""

    uid: Name
    namespace: Name
    name: Name
    gpus: Annotated[int, Meta(ge=0, le=64)]
    cards: list[CardShare] = field(default_factory=list)


class GpuNodeStatus(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The cards of the node, and the pods that hold cards without a row."""

    devices: list[Device] = field(default_factory=list)
    cards: Natural = 0
    healthy_cards: Natural = 0
    foreign: Annotated[
        list[ForeignHold],
        Meta(
            max_length=64,
            description="Pods without a row that hold cards of the node, since another scheduler"
            " placed them. The controller writes this list.",
        ),
    ] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


class GpuNode(Struct, rename="camel", kw_only=True):
    """The ledger of one node: the pods that hold shares of its cards. Has the name of the Node."""

    metadata: ObjectMeta
    spec: GpuNodeSpec = field(default_factory=GpuNodeSpec)
    status: GpuNodeStatus = field(default_factory=GpuNodeStatus)

    @property
    def pool(self) -> str:
        """The node pool that the label names, else the default pool."""
        return self.metadata.label(LABEL_NODE_POOL) or DEFAULT_POOL

    @property
    def n_foreign(self) -> int:
        """Number of whole cards that pods without a row hold, at most all cards of the node."""
        return min(sum(hold.gpus for hold in self.status.foreign), len(self.status.devices))

    @property
    def foreign_shares(self) -> list[CardShare]:
        """Shares of cards that pods without a row hold."""
        return [share for hold in self.status.foreign for share in hold.cards]


def devices_status(devices: Sequence[Device]) -> dict[str, object]:
    """The fields of a GpuNode's status for these cards, as they are written."""
    n_healthy = sum(device.health == "Healthy" for device in devices)
    return {"devices": list(devices), "cards": len(devices), "healthyCards": n_healthy}

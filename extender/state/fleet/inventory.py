"""What Node objects say of nodes, and how that differs from the ledger.

The differences are kept up to date per node, so reading them costs only what there is to repair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec import Struct, structs

from extender.api import names
from extender.api.card_sets import read_card_sets
from extender.api.demand import MAX_DEVICES, mig_slices
from extender.api.kinds import Device, ForeignHold, GpuNode
from extender.api.objects import Node, Quantity, Taint
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    parse_memory_floor,
    parse_positive,
    parse_quantity,
)
from extender.state.problems import Problem

#: Figures of a node's status (bytes, milli-CPU) must be below this, so their sums stay exact.
_MOST = 10**15
#: A node counts as running at most this many pods: the column of the node table has 32 bits.
_MOST_PODS = 2**30
_BLOCKING = ("NoSchedule", "NoExecute")


class HostFacts(Struct, frozen=True, gc=False, kw_only=True):
    """What decisions read of a Node. `cards` are the GPUs in its labels; empty without GPUs.

    `counted` are MIG instances by resource. `has_plugin_cards`: a device plugin offers whole cards
    or instances on the node. `lacks_plugin`: kubelet knows cards of a device plugin, and none of
    them is allocatable, as while the plugin restarts. `stays`: an annotation tells autoscalers not
    to remove it.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_ready: bool
    cpu_milli: int
    memory_mib: int
    n_pods: int
    capacity_milli: int
    allocatable_milli: int
    cards: tuple[Device, ...]
    counted: Mapping[str, int]
    has_plugin_cards: bool = False
    lacks_plugin: bool = False
    stays: bool = False
    problem: str = ""


@dataclass(slots=True, frozen=True)
class Differences:
    """What the controller should repair. None of it is urgent; every write is idempotent.

    `to_create`: nodes with GPUs but without GpuNode, with the devices from their labels or drivers.
    `to_describe`: nodes whose GpuNode has no devices, or differs from what DRA drivers publish, or
    from the labels where no agent has described the devices.
    `without_node`: GpuNodes without a Node. `gpu_milli`: the `ballast.dev/gpu-milli` that a Node's
    status lacks, in capacity and allocatable. `pool_labels`: the node pool that a GpuNode's label
    should name. `foreign`: the holds of pods without a row that a GpuNode's status should list.
    """

    to_create: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    to_describe: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    without_node: frozenset[str] = frozenset()
    gpu_milli: Mapping[str, int] = field(default_factory=dict)
    pool_labels: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, tuple[ForeignHold, ...]] = field(default_factory=dict)


class Known(NamedTuple):
    """What is known of a node besides its Node: its pool, what pods without a row hold, and the
    cards that DRA drivers publish for it, which replace those of its Node. `published` is None if
    no driver ever published any, and empty if none does now and a device plugin has cards."""

    pool: str = ""
    foreign: tuple[ForeignHold, ...] = ()
    published: tuple[Device, ...] | None = None


class Inventory:
    """Facts of every Node, and the differences from the GpuNodes."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostFacts] = {}
        self._bad: dict[str, str] = {}
        self._to_create: dict[str, tuple[Device, ...]] = {}
        self._to_describe: dict[str, tuple[Device, ...]] = {}
        self._without_node: set[str] = set()
        self._gpu_milli: dict[str, int] = {}
        self._pool_labels: dict[str, str] = {}
        self._foreign: dict[str, tuple[ForeignHold, ...]] = {}

    def set_host(self, node: Node) -> bool:
        """Store the node; returns whether anything but its heartbeat changed."""
        facts = _read_host(node)
        if facts == self.hosts.get(facts.name):
            return False
        self.hosts[facts.name] = facts
        self._bad.pop(facts.name, None)
        if facts.problem:
            self._bad[facts.name] = facts.problem
        return True

    def drop_host(self, name: str) -> None:
        """Forget the node; its GpuNode stays, because a lost node may still run its pods."""
        self.hosts.pop(name, None)
        self._bad.pop(name, None)

    def compare(self, name: str, gpu_node: GpuNode | None, known: Known) -> None:
        """Record how the Node of this name, with what is `known` of it, differs from `gpu_node`."""
        facts, foreign = self.hosts.get(name), known.foreign
        cards = known.published or facts.cards if facts else ()
        devices = gpu_node.status.devices if gpu_node else []
        self._to_create.pop(name, None)
        self._to_describe.pop(name, None)
        has_driver = facts is not None and known.published is not None
        is_other = has_driver and tuple(devices) != cards
        if cards and gpu_node is not None and not has_driver and _are_from_labels(devices):
            cards = _as_labelled(cards, gpu_node)
            is_other = tuple(devices) != cards
        if gpu_node is None and facts is not None and (cards or facts.counted):
            self._to_create[name] = cards
        elif gpu_node is not None and (is_other or (cards and not devices)):
            self._to_describe[name] = cards
        if gpu_node is not None and facts is None:
            self._without_node.add(name)
        else:
            self._without_node.discard(name)
        self._gpu_milli.pop(name, None)
        self._pool_labels.pop(name, None)
        self._foreign.pop(name, None)
        if gpu_node is not None and tuple(gpu_node.status.foreign) != foreign:
            self._foreign[name] = foreign
        if gpu_node is not None and facts is not None:
            want_milli = MILLI_PER_GPU * sum(device.health == "Healthy" for device in devices)
            if not facts.capacity_milli == facts.allocatable_milli == want_milli:
                self._gpu_milli[name] = want_milli
            if gpu_node.metadata.label(names.LABEL_NODE_POOL) != known.pool:
                self._pool_labels[name] = known.pool

    def lacks_ledger(self, name: str) -> bool:
        """Whether the node has GPUs and no GpuNode."""
        return name in self._to_create

    def differences(self) -> Differences:
        """All differences, as copies."""
        return Differences(
            to_create=dict(self._to_create),
            to_describe=dict(self._to_describe),
            without_node=frozenset(self._without_node),
            gpu_milli=dict(self._gpu_milli),
            pool_labels=dict(self._pool_labels),
            foreign=dict(self._foreign),
        )

    def problems(self) -> Iterable[Problem]:
        """Labels and figures of nodes that are not understood."""
        for name, text in self._bad.items():
            yield Problem("Node", name, "InvalidLabels", text)


def _read_host(node: Node) -> HostFacts:
    """The facts of a node; figures that are not understood count as zero and set `problem`."""
    status, meta = node.status, node.metadata
    problems: list[str] = []
    read = partial(_read, problems)
    n_plugin_cards = read(status.capacity, names.NVIDIA_GPU)
    counted = {
        resource: read(status.allocatable, resource)
        for resource in sorted(status.allocatable)
        if mig_slices(resource)
    }
    try:
        cards = _read_cards(node, n_plugin_cards)
    except UnitError as error:
        problems.append(str(error))
        cards = ()
    try:
        read_card_sets(meta.labels or {})
    except UnitError as error:
        problems.append(str(error))
    return HostFacts(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        taints=tuple(taint for taint in node.spec.taints or () if taint.effect in _BLOCKING),
        is_ready=_is_ready(node) and not is_replicated(meta.labels or {}),
        cpu_milli=read(status.allocatable, "cpu", 1000),
        memory_mib=parse_memory_floor(read(status.allocatable, "memory")),
        n_pods=min(read(status.allocatable, "pods"), _MOST_PODS),
        capacity_milli=read(status.capacity, names.GPU_MILLI),
        allocatable_milli=read(status.allocatable, names.GPU_MILLI),
        cards=cards,
        counted=counted,
        has_plugin_cards=bool(n_plugin_cards or counted),
        # Once a plugin has been away for five minutes kubelet states no capacity either.
        lacks_plugin=bool(
            n_plugin_cards
            and not counted
            and names.NVIDIA_GPU in status.allocatable
            and not read(status.allocatable, names.NVIDIA_GPU)
        ),
        stays=any(meta.annotation(name) == "true" for name in names.LASTING_NODE_KEYS),
        problem="; ".join(problems),
    )


def _are_from_labels(devices: Sequence[Device]) -> bool:
    """Whether the devices were described neither by a node agent nor by a DRA driver."""
    return not any(each.uuid or each.device for each in devices)


def _as_labelled(cards: tuple[Device, ...], gpu_node: GpuNode) -> tuple[Device, ...]:
    """What the ledger should say of the cards in the node's labels.

    Health stays as it is, and so do size and model while their label is missing. A card that the
    labels no longer list stays while a row holds it.
    """
    known = {each.index: each for each in gpu_node.status.devices}
    held = {share.index for row in gpu_node.spec.rows for share in row.cards}
    labelled = []
    for card in cards:
        before = known.pop(card.index, card)
        labelled.append(
            structs.replace(
                before,
                memory_mib=card.memory_mib or before.memory_mib,
                model=card.model or before.model,
            )
        )
    return (*labelled, *(card for index, card in sorted(known.items()) if index in held))


def _read(
    problems: list[str], listed: Mapping[str, Quantity], resource: str, per_unit: int = 1
) -> int:
    """The amount of the resource; if it is not understood, 0 and one more entry in `problems`."""
    try:
        amount = parse_quantity(listed.get(resource, 0), per_unit)
    except UnitError as error:
        problems.append(f"{resource}: {error}")
        return 0
    if amount >= _MOST:
        problems.append(f"{resource}: more than any node has")
        return 0
    return amount


def _is_ready(node: Node) -> bool:
    """Whether pods may be placed: the node is Ready, and neither cordoned nor being deleted."""
    if node.spec.unschedulable or node.metadata.deletion_timestamp is not None:
        return False
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())


def is_replicated(labels: Mapping[str, str]) -> bool:
    """Whether the node's device plugin advertises one card several times as whole cards."""
    replicas = labels.get(names.LABEL_GPU_REPLICAS, "")
    strategy = labels.get(names.LABEL_GPU_SHARING, "")
    return replicas not in ("", "0", "1") or strategy not in ("", "none")


def _read_cards(node: Node, n_plugin_cards: int) -> tuple[Device, ...]:
    """The devices by the labels of GPU feature discovery, or else by the device plugin's count."""
    if is_replicated(node.metadata.labels or {}):
        raise UnitError(
            "the device plugin shares cards (time-slicing or MPS), so nvidia.com/gpu is not a whole"
            " card: remove `sharing` from its configuration; until then the node is not used"
        )
    meta = node.metadata
    count, memory = meta.label(names.LABEL_GPU_COUNT), meta.label(names.LABEL_GPU_MEMORY)
    n_cards = n_plugin_cards
    # Where some cards are cut into instances, the label counts them too; the plugin does not.
    if count and count != "0" and meta.label(names.LABEL_MIG_STRATEGY) != "mixed":
        n_cards = parse_positive(count, names.LABEL_GPU_COUNT)
    if n_cards > MAX_DEVICES:
        raise UnitError(f"{n_cards} cards are more than a node can have: {MAX_DEVICES}")
    mib = parse_positive(memory, names.LABEL_GPU_MEMORY) if memory and n_cards else 0
    model = meta.label(names.LABEL_GPU_MODEL)
    return tuple(Device(index=index, memory_mib=mib, model=model) for index in range(n_cards))

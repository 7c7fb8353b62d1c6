"""Checks of dynamic resource allocation: which classes deliver cards, and on which nodes."""

from collections.abc import Iterator, Mapping

from extender.api.claims import UNSUPPORTED, driver_of_cards
from extender.api.names import LABEL_CARDS_OF, LABEL_NODE_AGENT, NO_AGENT, NVIDIA_GPU
from extender.preflight.facts import PRESENT, Facts
from extender.preflight.findings import PreflightFinding, State, some
from extender.state.fleet.device_cards import DeviceCards

_CHECK = "DRA"


def check_devices(facts: Facts) -> Iterator[PreflightFinding]:
    """Every finding about DeviceClasses and the devices that drivers publish."""
    devices = _devices_of(facts)
    yield from _classes(facts)
    yield from _uncounted(facts, devices)
    yield from _nodes_with_cards(facts, _cards_by_node(facts, devices))


def has_published_cards(facts: Facts) -> bool:
    """Whether a driver that a DeviceClass names publishes cards, as the controller counts them."""
    return bool(_cards_by_node(facts, _devices_of(facts)))


def _classes(facts: Facts) -> Iterator[PreflightFinding]:
    unmarked = [
        each.metadata.name
        for each in facts.device_classes
        if driver_of_cards(each) is None
        and "gpu" in each.metadata.name
        and each.metadata.name not in UNSUPPORTED
    ]
    if unmarked:
        found = f"DeviceClasses {some(unmarked)} are not understood, and claims for them refused"
        advice = f"label {LABEL_CARDS_OF}=DRIVER those that give whole cards, =none all others"
        yield PreflightFinding(_CHECK, State.WARN, found, advice)
    other = [
        f"{each.metadata.name} ({each.spec.extended_resource_name})"
        for each in facts.device_classes
        if driver_of_cards(each) and each.spec.extended_resource_name not in ("", NVIDIA_GPU)
    ]
    if other:
        found = (
            f"DeviceClasses {some(other)} give cards under a resource that no project is charged"
        )
        advice = (
            f"name it {NVIDIA_GPU}, or add it to `accelerators` of the policy gpu-pods.ballast.dev"
        )
        yield PreflightFinding(_CHECK, State.WARN, found, advice)


def _uncounted(facts: Facts, devices: DeviceCards) -> Iterator[PreflightFinding]:
    """Nodes with published devices that claims may share but that do not count as cards."""
    drivers = {driver_of_cards(each) for each in facts.device_classes}
    nodes = [
        each.spec.node_name
        for each in facts.slices
        if each.spec.node_name and each.spec.driver in drivers
        for device in each.spec.devices or ()
        if device.is_gpu
        and device.allow_multiple_allocations
        and not (device.is_shared_card and devices.share_steps_of(each.spec.node_name))
    ]
    if nodes:
        names = some(list(dict.fromkeys(nodes)))
        found = f"{names} have devices that claims may share, and that are not counted"
        advice = (
            "publish `memory` as their only capacity, and no whole cards on the same node: a node"
            " gives whole cards or shares"
        )
        yield PreflightFinding(_CHECK, State.WARN, found, advice)


def _nodes_with_cards(facts: Facts, published: Mapping[str, int]) -> Iterator[PreflightFinding]:
    nodes = [each for each in facts.nodes if each.name in published]
    both = [each.name for each in nodes if str(each.status.capacity.get(NVIDIA_GPU, "0")) != "0"]
    if both:
        found = f"{some(both)} have cards of a DRA driver and of a device plugin"
        advice = "run one of both on a node: each would give a card away without the other"
        yield PreflightFinding(_CHECK, State.WARN, found, advice)
    served = [
        each.name
        for each in nodes
        if each.labels.get(PRESENT) == "true" and each.labels.get(LABEL_NODE_AGENT) != NO_AGENT
    ]
    if served:
        found = f"{some(served)} have cards of a DRA driver, and the node agent runs there"
        advice = f"label them {LABEL_NODE_AGENT}={NO_AGENT}: the agent would give the cards out too"
        yield PreflightFinding(_CHECK, State.WARN, found, advice)
    if published and not both and not served:
        found = f"{sum(published.values())} cards on {len(published)} nodes are counted"
        yield PreflightFinding(_CHECK, State.OK, found)


def _cards_by_node(facts: Facts, devices: DeviceCards) -> Mapping[str, int]:
    names = dict.fromkeys(each.spec.node_name for each in facts.slices)
    found = {node: len(devices.cards_of(node)) for node in names}
    return {node: n_cards for node, n_cards in found.items() if n_cards}


def _devices_of(facts: Facts) -> DeviceCards:
    devices = DeviceCards()
    for each in facts.device_classes:
        devices.set_class(each)
    for published in facts.slices:
        devices.set_slice(published)
    return devices

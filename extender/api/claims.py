"""Cards by dynamic resource allocation: projections of resource.k8s.io/v1, and the claims that
Ballast supports.

A DeviceClass provides cards if its label `ballast.dev/cards-of` names the driver that publishes
them. A device of that driver is a card if its attribute `type` is `gpu` or absent. A device that
may be allocated to several claims is a shared card if memory is its only capacity.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from extender.api import names
from extender.api.claimed_memory import MEMORY, RequestPolicy, read_mib
from extender.api.objects import ObjectMeta, Quantity
from extender.api.units import UnitError

#: Name of NVIDIA's driver and of its DeviceClass of whole cards.
NVIDIA_DRIVER: Final = "gpu.nvidia.com"
#: DeviceClasses that NVIDIA's driver installs, which need no label, and the driver of their cards:
#: channels and daemons of a ComputeDomain are not GPUs.
_OF_NVIDIA: Final = {
    NVIDIA_DRIVER: NVIDIA_DRIVER,
    "compute-domain-default-channel.nvidia.com": "",
    "compute-domain-daemon.nvidia.com": "",
}
#: Those of its DeviceClasses that are not supported: MIG instances, and cards for virtual machines.
UNSUPPORTED: Final = frozenset(("mig.nvidia.com", "vfio.gpu.nvidia.com"))
#: Value of the label on a DeviceClass without GPUs, such as one of network cards.
NO_CARDS: Final = "none"
_CARD: Final = "gpu"
_EXACT_COUNT: Final = "ExactCount"
_REMEDY: Final = (
    "ask for `exactly` so many devices of a DeviceClass (allocationMode ExactCount), or for a share"
    " of one by `capacity` (requests: {memory: 10Gi})"
)


class DeviceAttribute(Struct, gc=False):
    """Value of an attribute; only `string` is read of `string`, `version`, `int` and `bool`."""

    string: str = ""


class DeviceCapacity(Struct, rename="camel", gc=False):
    value: Quantity = 0
    request_policy: RequestPolicy | None = None


class DeviceTaint(Struct, gc=False):
    effect: str = ""


class SliceDevice(Struct, rename="camel", gc=False):
    name: str = ""
    allow_multiple_allocations: bool | None = None
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    taints: list[DeviceTaint] | None = None

    def text(self, *attributes: str) -> str:
        """The value of the device's first attribute with one of these names, in any domain."""
        for key, value in (self.attributes or {}).items():
            if key.rpartition("/")[2] in attributes and value.string:
                return value.string
        return ""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a card and not a part of one."""
        return self.text("type") in ("", _CARD)

    @property
    def is_card(self) -> bool:
        """Whether the device is a card that only one claim gets."""
        return self.is_gpu and not self.allow_multiple_allocations

    @property
    def is_shared_card(self) -> bool:
        """Whether the device is a card of which claims share the memory and nothing else."""
        is_shared = self.is_gpu and bool(self.allow_multiple_allocations)
        return is_shared and list(self.capacity or ()) == [MEMORY]


class DevicePool(Struct, rename="camel", gc=False):
    name: str = ""
    generation: int = 0


class SliceSpec(Struct, rename="camel", gc=False):
    driver: str = ""
    pool: DevicePool = field(default_factory=DevicePool)
    node_name: str = ""
    devices: list[SliceDevice] | None = None


class ResourceSlice(Struct, gc=False):
    """The devices that a driver publishes for one node."""

    metadata: ObjectMeta
    spec: SliceSpec = field(default_factory=SliceSpec)


class DeviceClassSpec(Struct, rename="camel", gc=False):
    extended_resource_name: str = ""


class DeviceClass(Struct, gc=False):
    metadata: ObjectMeta
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class Selector(Struct, gc=False):
    """An expression; it is not evaluated."""


class CapacityRequest(Struct, gc=False):
    requests: dict[str, Quantity] | None = None


class DeviceSubRequest(Struct, rename="camel", gc=False):
    """A request for devices of one class."""

    device_class_name: str = ""
    selectors: list[Selector] | None = None
    allocation_mode: str = _EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    capacity: CapacityRequest | None = None


class DeviceRequest(Struct, rename="camel", gc=False):
    name: str = ""
    exactly: DeviceSubRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(Struct, gc=False):
    """A constraint on the devices of several requests; it is not evaluated."""


class DeviceClaim(Struct, gc=False):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None


class ClaimSpec(Struct, gc=False):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class AllocatedDevice(Struct, rename="camel", gc=False, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, Quantity] | None = None

    @property
    def id(self) -> str:
        """The device's `device_id`."""
        return device_id(self.driver, self.pool, self.device)


class DeviceAllocation(Struct, gc=False):
    results: list[AllocatedDevice] | None = None


class Allocation(Struct, gc=False):
    devices: DeviceAllocation = field(default_factory=DeviceAllocation)


class Consumer(Struct, gc=False):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(Struct, rename="camel", gc=False):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(Struct, gc=False):
    metadata: ObjectMeta
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)


def driver_of_cards(device_class: DeviceClass) -> str | None:
    """The driver of the cards that the class provides; empty: no cards; None: unknown."""
    meta = device_class.metadata
    said = meta.label(names.LABEL_CARDS_OF)
    if said:
        return "" if said == NO_CARDS else said
    return _OF_NVIDIA.get(meta.name)


class ClaimedGpus(Struct, frozen=True):
    """The cards that a pod requests by its claims: whole cards, or a share of one card in MiB."""

    n_cards: int = 0
    share_mib: int = 0

    def __bool__(self) -> bool:
        return bool(self.n_cards or self.share_mib)

    def __str__(self) -> str:
        if self.share_mib:
            return f"{self.share_mib} MiB of a GPU"
        return f"{self.n_cards} whole GPUs"


def device_id(driver: str, pool: str, device: str) -> str:
    """The name of a device, unique in the cluster."""
    return f"{driver}/{pool}/{device}"


def gpus_of_claims(
    specs: Iterable[ClaimSpec], classes: Mapping[str, DeviceClass | None]
) -> ClaimedGpus:
    """The cards that all claims of a pod request; raises UnitError for claims not supported.

    `classes` has every class that the claims name; the value is None if there is no such class.
    """
    found = []
    for spec in specs:
        devices = spec.devices
        requested = [_gpus_of_request(each, classes) for each in devices.requests or ()]
        if any(requested) and devices.constraints:
            raise UnitError("constraints between devices are not supported; remove them")
        found += [each for each in requested if each]
    shares = [each for each in found if each.share_mib]
    if shares and len(found) > 1:
        raise UnitError(
            "a share of a card is requested together with other cards; request one share"
        )
    return shares[0] if shares else ClaimedGpus(sum(each.n_cards for each in found))


def classes_of_claim(spec: ClaimSpec) -> list[str]:
    """All DeviceClasses that the claim names, each once."""
    listed = spec.devices.requests or ()
    subs = [sub for each in listed for sub in (each.exactly, *(each.first_available or ())) if sub]
    return list(dict.fromkeys(sub.device_class_name for sub in subs))


def _gpus_of_request(
    request: DeviceRequest, classes: Mapping[str, DeviceClass | None]
) -> ClaimedGpus:
    subs = [sub for sub in (request.exactly, *(request.first_available or ())) if sub]
    drivers = [_driver_of(sub.device_class_name, classes) for sub in subs]
    if subs and not any(drivers):
        return ClaimedGpus()
    exact = request.exactly
    if exact is None:
        raise UnitError(f"request {request.name:.63} has alternatives (firstAvailable); {_REMEDY}")
    for is_there, what in (
        (exact.allocation_mode != _EXACT_COUNT, f"allocationMode {exact.allocation_mode:.20}"),
        (exact.admin_access, "adminAccess"),
        (exact.selectors, "selectors, which may match no card of a node"),
    ):
        if is_there:
            raise UnitError(f"request {request.name:.63} has {what}; {_REMEDY}, and nothing else")
    if exact.capacity is not None and exact.capacity.requests:
        return ClaimedGpus(share_mib=_share_of(request.name, exact.capacity.requests, exact.count))
    return ClaimedGpus(exact.count)


def _share_of(name: str, asked: Mapping[str, Quantity], count: int) -> int:
    """MiB of a card that the request `name` asks for."""
    if other := sorted(asked.keys() - {MEMORY}):
        raise UnitError(
            f"request {name:.63} has capacity {other[0]:.63}; only {MEMORY} is supported"
        )
    mib = read_mib(asked[MEMORY])
    if not mib or count != 1:
        raise UnitError(
            f"request {name:.63} has {count} times {MEMORY} {asked[MEMORY]!s:.30}; a share must be"
            " of one card (count: 1) and a whole number of MiB, such as 10240Mi or 10Gi"
        )
    return mib


def _driver_of(name: str, classes: Mapping[str, DeviceClass | None]) -> str:
    """The driver of the cards of the class, empty if it provides none; raises UnitError."""
    device_class = classes.get(name)
    if device_class is None:
        raise UnitError(f"there is no DeviceClass {name:.253}, or it could not be read")
    driver = driver_of_cards(device_class)
    if driver is None and name in UNSUPPORTED:
        raise UnitError(
            f"Ballast does not support DeviceClass {name}: claim whole cards of {NVIDIA_DRIVER}, or"
            " ask for a MIG instance by the resource nvidia.com/mig-1g.10gb"
        )
    if driver is None:
        raise UnitError(
            f"Ballast does not know which devices DeviceClass {name:.253} provides; an"
            f" administrator must label it {names.LABEL_CARDS_OF}=DRIVER if each is a whole card of"
            f" that driver, or {names.LABEL_CARDS_OF}={NO_CARDS} if they are not GPUs"
        )
    return driver

"""What a pod asks for: the one place where GPU requests, and other schedulers' names for them, are read.

Accepted, and nothing else: `gpu-fraction` ("0.5" of a card), `gpu-memory` (MiB of a card), either
with `gpu-fraction-num-devices`, whole cards as the resource `nvidia.com/gpu`, or the resource
`ballast.dev/gpu-milli` alone. Two of these that disagree are refused, never merged.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from extender.api import names
from extender.api.objects import Container, Pod, Quantity
from extender.api.reasons import Reason, Refused
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    parse_cpu,
    parse_fraction,
    parse_memory,
    parse_positive,
    parse_quantity,
)

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
MODEL_SELECTOR: Final = "nvidia.com/use-gputype"

#: Labels that name a pod's project, ours first; then Run:ai's and KAI's.
PROJECT_LABELS: Final = (names.LABEL_PROJECT, "runai/queue", "kai.scheduler/queue")
#: Labels that name a pod's group, ours first; then the coscheduling plugin's.
GROUP_LABELS: Final = (
    names.LABEL_POD_GROUP,
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
)
MIN_MEMBER_KEYS: Final = (
    names.ANNOTATION_MIN_MEMBER,
    "pod-group.scheduling.sigs.k8s.io/min-available",
)

MAX_DEVICES: Final = 64


class Demand(Struct, frozen=True, gc=False):
    """What one pod needs: of GPUs, and of its node.

    `devices` cards, of each `milli`; a request in MiB has `gpu_memory_mib` > 0 and `milli` 0,
    since its milli depend on the card it lands on (`extender.api.units.share_milli`).
    """

    devices: int = 0
    milli: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    @property
    def total_milli(self) -> int:
        """Milli-GPU over all devices; a request in MiB counts 0 here, before it has a card."""
        return self.devices * self.milli

    @property
    def wants_gpu(self) -> bool:
        return self.devices > 0


def first_of(mapping: Mapping[str, str] | None, keys: Iterable[str]) -> str:
    """The value of the first key that is there and not empty, else the empty string."""
    if mapping:
        for key in keys:
            if value := mapping.get(key):
                return value
    return ""


def read_demand(pod: Pod) -> Demand | Refused:
    """What `pod` asks for, or the sentence that says what it should have asked."""
    try:
        gpu = _read_gpu(pod)
        cpu = _host_request(pod, "cpu", parse_cpu)
        memory = _host_request(pod, "memory", parse_memory)
    except UnitError as error:
        return Refused(Reason.INVALID_REQUEST, f"{_pod_name(pod)}: {error}")
    if isinstance(gpu, Refused):
        return gpu
    devices, milli, mib = gpu
    return Demand(devices, milli, mib, cpu, memory)


def read_min_member(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> int:
    """Pods of the group that must run together as the pod says, or 0; raises UnitError."""
    text = first_of(annotations, MIN_MEMBER_KEYS) or first_of(labels, MIN_MEMBER_KEYS)
    return parse_positive(text, "min-available") if text else 0


def gpu_milli_request(demand: Demand) -> int:
    """What the pod must request of `ballast.dev/gpu-milli`.

    A request in MiB asks for 1: its share of a card is known only when the card is, and asking for
    less than the truth keeps the in-tree filter permissive; the ledger counts exactly.
    """
    return demand.total_milli or min(demand.devices, 1)


def _pod_name(pod: Pod) -> str:
    meta = pod.metadata
    return f"{meta.namespace}/{meta.name or meta.generate_name}"


def _read_gpu(pod: Pod) -> tuple[int, int, int] | Refused:
    """(devices, milli of each, MiB of each) or why not; raises UnitError."""
    meta = pod.metadata
    notes = meta.annotations or {}
    whole = _gpu_resource(pod, names.NVIDIA_GPU)
    asked_milli = _gpu_resource(pod, names.GPU_MILLI)
    told = [
        said
        for said in (
            FRACTION in notes and FRACTION,
            MEMORY in notes and MEMORY,
            whole and names.NVIDIA_GPU,
        )
        if said
    ]
    if len(told) > 1:
        return Refused(
            Reason.INVALID_REQUEST,
            f"{_pod_name(pod)}: asks with {' and '.join(told)}; use one of them",
        )
    devices = 1
    if DEVICES in notes:
        if FRACTION not in notes and MEMORY not in notes:
            return Refused(
                Reason.INVALID_REQUEST,
                f"{_pod_name(pod)}: {DEVICES} needs {FRACTION} or {MEMORY} beside it",
            )
        devices = parse_positive(notes[DEVICES], DEVICES)
    if FRACTION in notes:
        request = devices, parse_fraction(notes[FRACTION]), 0
    elif MEMORY in notes:
        request = devices, 0, parse_positive(notes[MEMORY], MEMORY)
    elif whole:
        request = whole, MILLI_PER_GPU, 0
    elif asked_milli:
        if asked_milli > MILLI_PER_GPU and asked_milli % MILLI_PER_GPU:
            return Refused(
                Reason.INVALID_REQUEST,
                f"{_pod_name(pod)}: {names.GPU_MILLI}: {asked_milli} is neither one fraction"
                " (1 to 999) nor whole GPUs (a multiple of 1000)",
            )
        request = max(1, asked_milli // MILLI_PER_GPU), min(asked_milli, MILLI_PER_GPU), 0
    else:
        return 0, 0, 0
    if request[0] > MAX_DEVICES:
        return Refused(
            Reason.INVALID_REQUEST,
            f"{_pod_name(pod)}: wants {request[0]} cards, a node has at most {MAX_DEVICES}",
        )
    expected = request[0] * request[1] or 1
    if asked_milli and asked_milli != expected:
        return Refused(
            Reason.INVALID_REQUEST,
            f"{_pod_name(pod)}: requests {names.GPU_MILLI}: {asked_milli}, but its"
            f" {' and '.join(told)} means {expected}",
        )
    return request


def _requests(container: Container, resource: str) -> Quantity:
    """A container's request, or its limit where it states no request, as Kubernetes defaults it."""
    for listed in (container.resources.requests, container.resources.limits):
        if listed and resource in listed:
            return listed[resource]
    return 0


def _gpu_resource(pod: Pod, resource: str) -> int:
    """The pod's effective request of a whole-number resource."""
    apps = sum(parse_quantity(_requests(c, resource)) for c in pod.spec.containers)
    inits = [parse_quantity(_requests(c, resource)) for c in pod.spec.init_containers or ()]
    return max([apps, *inits])


def _host_request(pod: Pod, resource: str, parse: Callable[[Quantity], int]) -> int:
    """The pod's effective request as kube-scheduler counts it: init containers, side-cars, overhead."""
    total = sum(parse(_requests(c, resource)) for c in pod.spec.containers)
    sidecars = peak = 0
    for container in pod.spec.init_containers or ():
        asked = parse(_requests(container, resource))
        if container.restart_policy == "Always":
            sidecars += asked
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + asked)
    overhead = parse((pod.spec.overhead or {}).get(resource, 0))
    return max(total + sidecars, peak) + overhead

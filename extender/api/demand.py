"""The GPU request of a pod.

A pod requests GPUs in one of four ways:

- `ballast.dev/gpu-fraction` ("0.5" of a card), or without the prefix, as with Run:ai and KAI;
- `ballast.dev/gpu-memory` (MiB of a card), or without the prefix; like a fraction, it may have
  `gpu-fraction-num-devices` beside it;
- whole cards as the resource `nvidia.com/gpu`;
- the resource `ballast.dev/gpu-milli` alone.

Requests that contradict each other are refused, never merged.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from extender.api import names
from extender.api.aliases import agreed, first_of, written
from extender.api.objects import ObjectMeta, Pod, Quantity
from extender.api.reasons import Reason, Refused
from extender.api.requests import effective, host_request, request_of
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    format_gpus,
    format_mib,
    parse_cpu,
    parse_fraction,
    parse_memory,
    parse_milli,
    parse_positive,
    parse_share,
    parse_whole,
)

#: Run:ai's and KAI's names; in the pairs below ours come first.
FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
FRACTION_KEYS: Final = (names.ANNOTATION_FRACTION, FRACTION)
MEMORY_KEYS: Final = (names.ANNOTATION_MEMORY, MEMORY)
_PREFIXED: Final = (FRACTION_KEYS, MEMORY_KEYS)
DEVICES: Final = "gpu-fraction-num-devices"
FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
#: The most memory that a pod with a request in MiB may use: our annotation, then Run:ai's.
MEMORY_LIMIT: Final = "gpu-memory-limit"
MEMORY_LIMIT_KEYS: Final = (names.ANNOTATION_MEMORY_LIMIT, MEMORY_LIMIT)
MODEL_SELECTOR: Final = "nvidia.com/use-gputype"

#: Annotations of users with a share of compute time ("0.5"); our own are in milli.
COMPUTE_REQUEST: Final = "gpu-compute-request"
COMPUTE_LIMIT: Final = "gpu-compute-limit"

#: Annotations and resources by which a pod requests GPUs.
SHARE_ANNOTATIONS: Final = (
    names.ANNOTATION_FRACTION,
    names.ANNOTATION_MEMORY,
    FRACTION,
    MEMORY,
)
GPU_ANNOTATIONS: Final = (*SHARE_ANNOTATIONS, DEVICES, FRACTION_CONTAINER)
GPU_RESOURCES: Final = (names.NVIDIA_GPU, names.GPU_MILLI)

#: The most cards of a node: a set of cards is a 64-bit word.
MAX_DEVICES: Final = 64
#: A card has at most seven MIG instances.
MAX_INSTANCES: Final = 7 * MAX_DEVICES
#: End of the error message for a wrong number of cards.
_OF_CARDS: Final = ', such as 2; half of a GPU is the annotation gpu-fraction: "0.5"'

_CPU: Final = partial(parse_cpu, what="cpu")
_MEMORY: Final = partial(parse_memory, what="memory")

#: Resources of MIG instances, as NVIDIA's device plugin names them: a GPU instance with a number of
#: slices, or a compute instance (`1c.`) in one; `.me` has media engines, `.gfx` graphics. Replicas
#: of time-slicing (`.shared`) are not supported. The policy gpu-pods has the same pattern.
MIG_PATTERN: Final = (
    r"nvidia\.com/mig-(?:([1-7])c\.)?([1-7])g\.[1-9][0-9]*gb(?:\.(?:me|gfx|me\.all))?"
)
_MIG = re.compile(MIG_PATTERN, re.ASCII)

#: How a pod gets its cards: by the resource nvidia.com/gpu, from the node agent, by a claim for
#: whole cards, or by a claim for a share of a card.
Delivery = Literal["resource", "agent", "claim", "share"]
#: The deliveries in which kube-scheduler allocates the cards.
BY_CLAIMS: Final[tuple[Delivery, ...]] = ("claim", "share")


def mig_slices(resource: str) -> int:
    """Compute slices of a MIG profile's resource: 2 for nvidia.com/mig-2g.10gb, 0 for others."""
    match = _MIG.fullmatch(resource)
    return int(match[1] or match[2]) if match else 0


def slices_milli(counted: Iterable[tuple[str, int]]) -> int:
    """Milli-GPU of (resource, count) pairs: 1000 for each MIG compute slice."""
    return MILLI_PER_GPU * sum(mig_slices(name) * n for name, n in counted)


class Demand(Struct, frozen=True, gc=False):
    """The resources that one pod requests.

    `devices` cards, and `milli` or `gpu_memory_mib` of each. A request in MiB has `milli` 0, since
    its milli depend on the size of the card (`extender.api.units.share_milli`). `counted` has
    resources that nodes have in whole numbers, such as MIG instances, sorted by name.
    """

    devices: int = 0
    milli: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    counted: tuple[tuple[str, int], ...] = ()

    @property
    def counted_milli(self) -> int:
        """Milli-GPU of the MIG instances: 1000 for each compute slice."""
        return slices_milli(self.counted) if self.counted else 0

    @property
    def total_milli(self) -> int:
        """Milli-GPU of all devices; 0 for a request in MiB, which has no milli without a card."""
        return self.devices * self.milli

    @property
    def wants_gpu(self) -> bool:
        """Whether the pod requests cards."""
        return self.devices > 0

    @property
    def is_gpu_work(self) -> bool:
        """Whether queues are charged GPUs for the pod: it requests cards or MIG instances."""
        return self.devices > 0 or self.counted_milli > 0


def read_demand(pod: Pod) -> Demand | Refused:
    """The request of `pod`, or a refusal that says what is accepted."""
    try:
        devices, milli, mib = _read_gpu(pod)
        cpu, memory = host_request(pod, "cpu", _CPU), host_request(pod, "memory", _MEMORY)
        counted = read_counted(pod)
        if devices and counted:
            raise UnitError(f"requests both cards and {counted[0][0]}; use one of them")
    except UnitError as error:
        return Refused(Reason.INVALID_REQUEST, f"{pod_name(pod)}: {error}")
    return Demand(devices, milli, mib, cpu, memory, counted)


def read_counted(pod: Pod) -> tuple[tuple[str, int], ...]:
    """The MIG instances that the pod requests, sorted by resource name; raises UnitError."""
    found: set[str] = set()
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        for listed in (container.resources.requests, container.resources.limits):
            found.update(filter(mig_slices, listed or ()))
    asked = [(name, effective(pod, name, _count_of(name))) for name in sorted(found)]
    if (n_instances := sum(n for _, n in asked)) > MAX_INSTANCES:
        raise UnitError(f"requests {n_instances} MIG instances; a node has at most {MAX_INSTANCES}")
    return tuple((name, n) for name, n in asked if n)


def read_plugin_cards(pod: Pod) -> int:
    """Whole cards that the device plugin allocates to the pod; 0 if the number is invalid."""
    try:
        return effective(pod, names.NVIDIA_GPU, _count_of(names.NVIDIA_GPU))
    except UnitError:
        return 0


def read_milli(pod: Pod) -> int:
    """The pod's request of `ballast.dev/gpu-milli`; raises UnitError."""
    return effective(pod, names.GPU_MILLI, _count_of(names.GPU_MILLI))


def delivery_of(pod: Pod, demand: Demand) -> Delivery:
    """How the pod gets its cards.

    The webhook writes requests by claims as milli-GPU. So a pod with claims that requests whole
    cards in no other way gets them by its claims. For a share, the webhook writes an annotation.
    """
    if not demand.wants_gpu or read_plugin_cards(pod):
        return "resource"
    if demand.gpu_memory_mib and pod.spec.resource_claims:
        by = pod.metadata.annotation(names.ANNOTATION_MEMORY_BY)
        return "share" if by == names.BY_CLAIM else "agent"
    is_whole = (
        demand.milli == MILLI_PER_GPU and first_of(pod.metadata.annotations, GPU_ANNOTATIONS) == ""
    )
    return "claim" if is_whole and pod.spec.resource_claims else "agent"


def gpu_milli_request(demand: Demand) -> int:
    """The request of `ballast.dev/gpu-milli` that the pod must have.

    It is 1 for a request in MiB, since its share is known only once the card is: a request below
    the true share keeps kube-scheduler's own filter permissive, and the ledger counts exactly.
    """
    return demand.total_milli or min(demand.devices, 1)


def read_compute(pod: Pod, demand: Demand) -> tuple[int, int]:
    """(guaranteed, largest) share of compute time on each card, in milli; raises UnitError.

    By default a fraction is guaranteed its own share, a request in MiB nothing, and both may use
    idle time; whole cards are guaranteed entirely. A guarantee never exceeds the share of the card:
    a fraction with a larger request is refused, and for a request in MiB it is capped once the card
    is known (`extender.api.ledger.guaranteed_milli`).
    """
    notes = pod.metadata.annotations or {}
    limit = _share(notes, names.ANNOTATION_COMPUTE_LIMIT, COMPUTE_LIMIT, MILLI_PER_GPU)
    usual = min(demand.milli, limit)
    request = _share(notes, names.ANNOTATION_COMPUTE_REQUEST, COMPUTE_REQUEST, usual)
    key = written(notes, (COMPUTE_REQUEST, names.ANNOTATION_COMPUTE_REQUEST))
    if request > limit:
        of_limit = written(notes, (COMPUTE_LIMIT, names.ANNOTATION_COMPUTE_LIMIT))
        raise UnitError(
            f"{key} is {format_gpus(request)}, above {of_limit}, {format_gpus(limit)}; give at most"
            " that"
        )
    if 0 < demand.milli < request:
        raise UnitError(
            f"{key} is {format_gpus(request)}, above the {format_gpus(demand.milli)} of"
            " each card that the pod requests; lower it, or request a larger fraction"
        )
    return request, limit


def read_memory_limit(annotations: Mapping[str, str]) -> int:
    """The most MiB of each card that a pod with a request in MiB may use; 0 without a limit.

    Raises UnitError, also if the limit is below the request.
    """
    text, asked = agreed(annotations, MEMORY_LIMIT_KEYS), agreed(annotations, MEMORY_KEYS)
    if not text or not asked:
        return 0
    key, of_request = written(annotations, MEMORY_LIMIT_KEYS), written(annotations, MEMORY_KEYS)
    limit, request = parse_positive(text, key, _of_mib(text)), parse_positive(asked, of_request)
    if limit < request:
        raise UnitError(
            f"{key} is {limit} MiB, below {of_request}, {request}; raise it, or leave it out"
        )
    return limit


def fraction_container(pod: Pod) -> int:
    """Index in `spec.containers` of the container that gets the share; raises UnitError."""
    name = pod.metadata.annotation(FRACTION_CONTAINER)
    if not name:
        return 0
    for ix, container in enumerate(pod.spec.containers):
        if container.name == name:
            return ix
    present = ", ".join(container.name for container in pod.spec.containers)
    raise UnitError(
        f"{FRACTION_CONTAINER}: {name!r:.80} is none of spec.containers ({present:.200})"
    )


def mentions_gpu(pod: Pod) -> bool:
    """Whether the pod has an annotation or resource for GPUs, valid or not."""
    notes = pod.metadata.annotations or {}
    if any(key in notes for key in GPU_ANNOTATIONS):
        return True
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    return any(
        request_of(c, resource) not in (0, "0") for c in containers for resource in GPU_RESOURCES
    ) or any(
        mig_slices(name)
        for c in containers
        for listed in (c.resources.requests, c.resources.limits)
        for name in listed or ()
    )


def shares_cards(notes: Container[str]) -> bool:
    """Whether annotations with these keys request a share of each card, valid or not."""
    return any(key in notes for key in SHARE_ANNOTATIONS)


def pod_name(pod: Pod) -> str:
    """`namespace/name` for messages, with `generateName` if the pod has no name yet."""
    meta = pod.metadata
    return f"{meta.namespace}/{meta.name or meta.generate_name}"


def share_notes(meta: ObjectMeta) -> Mapping[str, str]:
    """The annotations, with our prefixed names copied to `FRACTION` and `MEMORY`.

    Raises UnitError if both names of one annotation are present and differ.
    """
    notes = meta.annotations or {}
    if all(ours not in notes for ours, _ in _PREFIXED):
        return notes
    folded = dict(notes)
    for ours, alias in _PREFIXED:
        if ours in notes and folded.setdefault(alias, notes[ours]) != notes[ours]:
            raise UnitError(f"{ours} and {alias} differ; keep one of them")
    return folded


def _share(notes: Mapping[str, str], ours: str, theirs: str, default: int) -> int:
    milli = parse_milli(notes[ours], ours) if ours in notes else None
    share = parse_share(notes[theirs], theirs) if theirs in notes else milli
    if None not in (milli, share) and milli != share:
        raise UnitError(f"{ours} and {theirs} differ; keep one of them")
    return default if share is None else share


def _read_gpu(pod: Pod) -> tuple[int, int, int]:
    """(devices, milli of each, MiB of each); raises UnitError."""
    notes = share_notes(pod.metadata)
    whole = effective(pod, names.NVIDIA_GPU, _count_of(names.NVIDIA_GPU))
    asked_milli = read_milli(pod)
    stated: list[str] = [written(notes, keys) for keys in _PREFIXED if keys[1] in notes]
    if whole:
        stated.append(names.NVIDIA_GPU)
    if len(stated) > 1:
        hint = " (a LimitRange of the namespace may have added the last)" if whole else ""
        raise UnitError(f"requests GPUs with {' and '.join(stated)}; use one of them{hint}")
    if DEVICES in notes and FRACTION not in notes and MEMORY not in notes:
        raise UnitError(f"{DEVICES} needs {FRACTION} or {MEMORY} beside it")
    if stated:
        request = _stated_request(notes, whole)
        expected = request[0] * request[1] or 1
        if asked_milli not in (0, expected):
            raise UnitError(
                f"requests {names.GPU_MILLI}: {asked_milli}, but its {stated[0]} means {expected}"
            )
    else:
        request = _milli_request(asked_milli)
    if request[0] > MAX_DEVICES:
        raise UnitError(f"requests {request[0]} cards; a node has at most {MAX_DEVICES}")
    return request


def _stated_request(notes: Mapping[str, str], whole: int) -> tuple[int, int, int]:
    """The request that the user stated: a fraction, MiB, or whole cards."""
    if whole:
        return whole, MILLI_PER_GPU, 0
    devices = parse_positive(notes[DEVICES], DEVICES) if DEVICES in notes else 1
    if FRACTION in notes:
        return devices, parse_fraction(notes[FRACTION], written(notes, FRACTION_KEYS)), 0
    text, key = notes[MEMORY], written(notes, MEMORY_KEYS)
    return devices, 0, parse_positive(text, key, _of_mib(text))


def _of_mib(text: str) -> str:
    """End of the error message for a wrong number of MiB: the unit, and the number for a quantity
    such as 10Gi."""
    mib = 8192
    if text[-1:].isalpha():
        with suppress(UnitError):
            mib = parse_memory(text)
    return f'; the unit is MiB: for {format_mib(mib)} write "{mib}"'


def _milli_request(asked_milli: int) -> tuple[int, int, int]:
    """The request of a pod with the resource gpu-milli alone: one fraction or whole cards."""
    if not asked_milli:
        return 0, 0, 0
    if asked_milli > MILLI_PER_GPU and asked_milli % MILLI_PER_GPU:
        raise UnitError(
            f"{names.GPU_MILLI}: {asked_milli} is neither one fraction (1 to 999) nor whole GPUs"
            " (a multiple of 1000)"
        )
    return max(1, asked_milli // MILLI_PER_GPU), min(asked_milli, MILLI_PER_GPU), 0


def _count_of(resource: str) -> Callable[[Quantity], int]:
    example = _OF_CARDS if resource == names.NVIDIA_GPU else ", such as 2"
    return lambda value: parse_whole(value, resource, example)

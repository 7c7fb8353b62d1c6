"""What a pod holds of its node besides cards: CPU, memory and counted resources."""

from contextlib import suppress

from msgspec import Struct

from extender.api import names
from extender.api.demand import Demand, read_counted
from extender.api.objects import Pod
from extender.api.reasons import Refused
from extender.api.requests import host_held, host_request
from extender.api.units import UnitError, parse_cpu, parse_memory
from extender.state.model import Labels
from extender.state.pods.labels import share_labels


class HostHold(Struct, frozen=True, gc=False):
    """What one pod holds of its node besides cards.

    `is_lasting`: it has no GPUs, and autoscalers do not count a node that runs it as empty.
    `namespace` and `labels` are those of a bound pod without a row, which affinity may select.
    """

    node: str
    cpu_milli: int
    memory_mib: int
    counted: tuple[tuple[str, int], ...] = ()
    is_lasting: bool = False
    namespace: str = ""
    labels: Labels = ()


def read_hold(pod: Pod, demand: Demand | Refused) -> HostHold:
    """What a pod without GPUs holds of the node it is bound to."""
    host = host_demand(pod) if isinstance(demand, Refused) else demand
    cpu_milli, memory_mib = held_of_host(pod)
    return HostHold(
        pod.spec.node_name,
        max(host.cpu_milli, cpu_milli),
        max(host.memory_mib, memory_mib),
        host.counted,
        is_lasting=_is_lasting(pod),
        namespace=pod.metadata.namespace,
        labels=share_labels(pod.metadata.labels or {}) or (),
    )


def _is_lasting(pod: Pod) -> bool:
    """Whether the pod keeps its node in use: it is no DaemonSet pod and no static pod."""
    owner = pod.metadata.controller
    is_part = owner is not None and owner.kind in ("DaemonSet", "Node")
    return not is_part and not pod.metadata.annotation(names.ANNOTATION_MIRROR)


def host_demand(pod: Pod) -> Demand:
    """CPU, memory and counted resources of a pod with a refused GPU request: it may be bound.

    Quantities that are not understood, or that no node has, count as zero.
    """
    cpu_milli = memory_mib = 0
    counted: tuple[tuple[str, int], ...] = ()
    with suppress(UnitError):
        counted = read_counted(pod)
    with suppress(UnitError):
        cpu_milli = host_request(pod, "cpu", parse_cpu)
    with suppress(UnitError):
        memory_mib = host_request(pod, "memory", parse_memory)
    return Demand(cpu_milli=cpu_milli, memory_mib=memory_mib, counted=counted)


def held_of_host(pod: Pod) -> tuple[int, int]:
    """CPU in milli and memory in MiB that the bound pod holds; (0, 0) before it is bound."""
    if not pod.spec.node_name:
        return 0, 0
    return host_held(pod, "cpu", parse_cpu), host_held(pod, "memory", parse_memory)

"""How much of one resource a pod requests and holds, as kube-scheduler counts it.

The request follows from the spec alone; the project is charged for it. For a while the pod may hold
more than it requests: an in-place resize lowers the spec first and the allocation later.
"""

from collections.abc import Callable, Mapping
from typing import Final

from extender.api.objects import Container, ContainerStatus, Pod, PodStatus, Quantity
from extender.api.units import UnitError

Parse = Callable[[Quantity], int]

#: No node has more of any resource, in milli-CPU, MiB or pieces; sums over all pods fit 64 bits.
MOST: Final = 2**32


def request_of(container: Container, resource: str) -> Quantity:
    """A container's request; without one its limit, as Kubernetes defaults it."""
    for listed in (container.resources.requests, container.resources.limits):
        if listed and resource in listed:
            return listed[resource]
    return 0


def effective(pod: Pod, resource: str, parse: Parse, given: Mapping[str, int] | None = None) -> int:
    """The request of all containers, init containers and sidecars; raises UnitError, also if no
    node has so much.

    `given` has the amounts that containers already hold, by container name: the minimum that each
    counts.
    """
    least = given or {}

    def counted(container: Container) -> int:
        return max(parse(request_of(container, resource)), least.get(container.name, 0))

    total = sum(map(counted, pod.spec.containers))
    sidecars = peak = 0
    for container in pod.spec.init_containers or ():
        amount = counted(container)
        if container.restart_policy == "Always":
            sidecars += amount
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + amount)
    return _possible(max(total + sidecars, peak), resource)


def host_request(pod: Pod, resource: str, parse: Parse) -> int:
    """CPU or memory that the pod requests: its pod-level request, else that of its containers, plus
    its overhead. Raises UnitError."""
    return _of_pod(pod, resource, parse, effective(pod, resource, parse), 0)


def host_held(pod: Pod, resource: str, parse: Parse) -> int:
    """CPU or memory that the pod holds: the larger of its request and its allocation.

    0 if a quantity is not understood, or no node has so much.
    """
    status = pod.status
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    given = {each.name: _most_given(each, resource, parse) for each in statuses}
    least = _most_given(status, resource, parse)
    try:
        return _of_pod(pod, resource, parse, effective(pod, resource, parse, given), least)
    except UnitError:
        return 0


def _of_pod(pod: Pod, resource: str, parse: Parse, total: int, least: int) -> int:
    """`spec.resources` if it states the resource, else `total` of the containers; plus overhead.

    A pod-level limit counts as the request if neither the pod nor any container requests any.
    """
    stated = pod.spec.resources
    if stated is not None and stated.requests and resource in stated.requests:
        total = max(parse(stated.requests[resource]), least)
    elif stated is not None and stated.limits and resource in stated.limits and not total:
        total = max(parse(stated.limits[resource]), least)
    return _possible(total + parse((pod.spec.overhead or {}).get(resource, 0)), resource)


def _possible(amount: int, resource: str) -> int:
    if amount > MOST:
        raise UnitError(f"requests more {resource} than any node has")
    return amount


def _most_given(status: ContainerStatus | PodStatus, resource: str, parse: Parse) -> int:
    """The larger of the amount that kubelet has allocated and the amount in force."""
    in_force = status.resources.requests if status.resources else None
    listed = status.allocated_resources or {}, in_force or {}
    try:
        return max((parse(each[resource]) for each in listed if resource in each), default=0)
    except UnitError:
        return 0

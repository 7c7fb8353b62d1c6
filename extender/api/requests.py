"""How much of one resource a pod asks for and holds, as kube-scheduler counts it.

What a pod asks for is its spec alone, and is what its project is charged. What it holds of its node
may be more for a while: an in-place resize lowers the spec first and the allocation later.
"""

from collections.abc import Callable, Mapping

from extender.api.objects import Container, ContainerStatus, Pod, PodStatus, Quantity
from extender.api.units import UnitError

Parse = Callable[[Quantity], int]


def request_of(container: Container, resource: str) -> Quantity:
    """A container's request, or its limit where it states no request, as Kubernetes defaults it."""
    for listed in (container.resources.requests, container.resources.limits):
        if listed and resource in listed:
            return listed[resource]
    return 0


def effective(pod: Pod, resource: str, parse: Parse, given: Mapping[str, int] | None = None) -> int:
    """The sum over containers, init containers and side-cars; raises UnitError.

    `given` is by container what it holds at least.
    """
    least = given or {}

    def asked_by(container: Container) -> int:
        return max(parse(request_of(container, resource)), least.get(container.name, 0))

    total = sum(map(asked_by, pod.spec.containers))
    sidecars = peak = 0
    for container in pod.spec.init_containers or ():
        asked = asked_by(container)
        if container.restart_policy == "Always":
            sidecars += asked
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + asked)
    return max(total + sidecars, peak)


def host_request(pod: Pod, resource: str, parse: Parse) -> int:
    """CPU or memory that the spec asks for: of the pod as a whole where it says so, else the sum
    over its containers; and its overhead. Raises UnitError."""
    return _of_pod(pod, resource, parse, effective(pod, resource, parse), 0)


def host_held(pod: Pod, resource: str, parse: Parse) -> int:
    """CPU or memory that the pod holds of its node: what it asks for, or was given if that is more.

    What is not understood counts nothing.
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
    """`total` of the containers, or what `spec.resources` says instead, and the overhead.

    A limit of the pod is its request where neither it nor any container states one.
    """
    stated = pod.spec.resources
    if stated is not None and stated.requests and resource in stated.requests:
        total = max(parse(stated.requests[resource]), least)
    elif stated is not None and stated.limits and resource in stated.limits and not total:
        total = max(parse(stated.limits[resource]), least)
    return total + parse((pod.spec.overhead or {}).get(resource, 0))


def _most_given(status: ContainerStatus | PodStatus, resource: str, parse: Parse) -> int:
    """The larger of what kubelet allocated and what it has put in force."""
    in_force = status.resources.requests if status.resources else None
    listed = status.allocated_resources or {}, in_force or {}
    try:
        return max((parse(each[resource]) for each in listed if resource in each), default=0)
    except UnitError:
        return 0

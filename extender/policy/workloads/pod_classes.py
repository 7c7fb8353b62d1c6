"""What pods ask for, without their names: pods of one shape are placed alike, and fail alike."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.state.model import Constraints, PodView

#: By shape: what is asked for, which constraints, how many pods.
ShapesKey = tuple[tuple[Demand, int, int], ...]


class Shape(Struct, gc=False):
    """`count` pods that ask for the same, under the same constraints."""

    demand: Demand
    constraints: Constraints
    count: int

    def is_no_easier_than(self, other: "Shape") -> bool:
        """Whether it can't have a place where `other` has none."""
        mine, its = self.demand, other.demand
        return (
            self.constraints is other.constraints
            and self.count >= other.count
            and mine.devices >= its.devices
            and mine.milli >= its.milli
            and mine.gpu_memory_mib >= its.gpu_memory_mib
            and (mine.gpu_memory_mib > 0) == (its.gpu_memory_mib > 0)
            and mine.cpu_milli >= its.cpu_milli
            and mine.memory_mib >= its.memory_mib
            and mine.counted == its.counted
        )


def shapes_of(pods: Sequence[PodView]) -> list[Shape]:
    """The distinct shapes among the pods."""
    if len(pods) == 1:
        return [Shape(pods[0].demand, pods[0].constraints, 1)]
    found: dict[tuple[Demand, int], Shape] = {}
    for pod in pods:
        key = pod.demand, id(pod.constraints)
        if key in found:
            found[key].count += 1
        else:
            found[key] = Shape(pod.demand, pod.constraints, 1)
    return list(found.values())


def key_of(shapes: Iterable[Shape]) -> ShapesKey:
    """What tells these shapes, and how many pods they have, from others, while the pods live."""
    return tuple([(each.demand, id(each.constraints), each.count) for each in shapes])


def in_packing_order(pods: Sequence[PodView]) -> list[PodView]:
    """The largest first, so that small ones take what they leave; otherwise as given."""
    if len({pod.demand for pod in pods}) == 1:
        return list(pods)
    return sorted(pods, key=lambda pod: (-_size(pod.demand), -pod.demand.cpu_milli))


def placing_orders(
    pods: Sequence[PodView], n_nodes: Callable[[PodView], int]
) -> Iterator[list[PodView]]:
    """Orders in which to place the pods one by one, until one of them works: first the packing
    order; then, where they may use different nodes, those first that may use the fewest (of which
    `n_nodes` says how many); then, where only some need a peer that others may be, with these at
    the end."""
    in_order = in_packing_order(pods)
    yield in_order
    if any(pod.constraints is not pods[0].constraints for pod in pods):
        fewest_first = sorted(in_order, key=n_nodes)
        if fewest_first != in_order:
            yield fewest_first
    last = [pod for pod in in_order if pod.constraints.pod_affinity]
    if 0 < len(last) < len(pods):
        yield [pod for pod in in_order if not pod.constraints.pod_affinity] + last


def alike(pods: Sequence[PodView]) -> list[list[PodView]]:
    """The pods in their order, neighbours of one shape together."""
    if len(pods) == 1:
        return [list(pods)]
    grouped = groupby(pods, key=lambda pod: (pod.demand, id(pod.constraints)))
    return [list(group) for _, group in grouped]


def _size(demand: Demand) -> int:
    return demand.devices * (demand.milli or MILLI_PER_GPU) + demand.gpu_memory_mib

"""The shapes of pods: pods with the same demand and constraints fit or fail alike."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.state.model import Constraints, PodView

#: For each shape its demand, the id of its constraints, and its count.
ShapesKey = tuple[tuple[Demand, int, int], ...]


class Shape(Struct, gc=False):
    """`count` pods with the same demand and constraints."""

    demand: Demand
    constraints: Constraints
    count: int

    def is_no_easier_than(self, other: "Shape") -> bool:
        """Whether the shape cannot fit if `other` does not."""
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
    return [Shape(same[0].demand, same[0].constraints, len(same)) for same in by_shape(pods)]


def by_shape(pods: Iterable[PodView]) -> list[list[PodView]]:
    """The pods grouped by shape, in the order of the first pod of each."""
    found: dict[tuple[Demand, int], list[PodView]] = {}
    for pod in pods:
        found.setdefault((pod.demand, id(pod.constraints)), []).append(pod)
    return list(found.values())


def key_of(shapes: Iterable[Shape]) -> ShapesKey:
    """A hashable key of the shapes and counts; valid while their constraints are alive."""
    return tuple([(each.demand, id(each.constraints), each.count) for each in shapes])


def in_packing_order(pods: Sequence[PodView]) -> list[PodView]:
    """The pods with the largest requests first, so that small ones fill the gaps; stable."""
    if len({pod.demand for pod in pods}) == 1:
        return list(pods)
    return sorted(pods, key=lambda pod: (-_size(pod.demand), -pod.demand.cpu_milli))


def placing_orders(
    pods: Sequence[PodView], n_nodes: Callable[[PodView], int]
) -> Iterator[list[PodView]]:
    """Orders in which to place the pods one by one, to be tried until one works.

    The first is the packing order. If constraints differ, the second starts with the pods that have
    the fewest candidate nodes (`n_nodes`). If only some pods have affinity terms, the last order
    has these at the end, after their possible peers.
    """
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
    """The pods in their order, with adjacent pods of one shape grouped."""
    if len(pods) == 1:
        return [list(pods)]
    grouped = groupby(pods, key=lambda pod: (pod.demand, id(pod.constraints)))
    return [list(group) for _, group in grouped]


def _size(demand: Demand) -> int:
    return demand.devices * (demand.milli or MILLI_PER_GPU) + demand.gpu_memory_mib

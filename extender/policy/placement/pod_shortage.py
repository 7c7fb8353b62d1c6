"""What one pod lacks on every node that it may use, or all like it even on empty nodes."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from extender.api.demand import Demand, mig_slices
from extender.api.reasons import Reason
from extender.api.units import MILLI_PER_GPU, format_cpus, format_gpus
from extender.kernels import nodes as kernel
from extender.policy.placement.capacity_bound import CapacityBound, empty_capacity, fits_new_node
from extender.policy.placement.placer import Placer
from extender.policy.placement.request_text import full_text, gpu_text, host_text, main_text
from extender.policy.placement.simulation import fits_host
from extender.policy.workloads.pod_classes import Shape, by_shape
from extender.state.model import PodView


@dataclass(slots=True, frozen=True)
class Cause:
    """The reason and its text. `is_permanent`: the chunk would not fit even on empty nodes."""

    reason: Reason
    why: str
    is_permanent: bool = False


@dataclass(slots=True, frozen=True)
class PodKind:
    """The `count` pods of one shape in a chunk of `n_pods`, and one of them as an example."""

    pod: PodView
    count: int
    n_pods: int

    def needs(self, what: str) -> str:
        """The start of the message: what each of these pods needs."""
        if self.n_pods == 1:
            return f"needs {what}"
        where = f"each of {self.count} pods" if self.count > 1 else f"one of {self.n_pods} pods"
        return f"needs {what} in {where}"


def kinds_of(pods: Sequence[PodView]) -> list[PodKind]:
    """The pods by shape; the shape with the largest GPU request per pod comes first."""
    found = [PodKind(same[0], len(same), len(pods)) for same in by_shape(pods)]
    found.sort(key=lambda kind: -kind.pod.demand.devices * (kind.pod.demand.milli or 1))
    return found


def bare(demand: Demand) -> Demand:
    """The demand without CPU and memory."""
    return replace(demand, cpu_milli=0, memory_mib=0)


@dataclass(slots=True)
class PodShortage:
    """Compares one pod with the nodes as they are now."""

    places: Placer
    bound: CapacityBound

    def find(self, kind: PodKind, pool: str, *, checks_affinity: bool) -> Cause | None:
        """Why not even one such pod fits; None if one does."""
        pod, node_filter = kind.pod, self.places.node_filter
        demand = pod.demand
        candidates = node_filter.candidates(pool, pod.constraints)
        if not candidates:
            why = node_filter.why_none(pool, pod.constraints)
            if kind.count < kind.n_pods:
                why = f"{kind.needs(main_text(demand))}; {why}"
            was_refused = pod.refusals.count > 0
            why = f"{why}: {pod.refusals.why}" if pod.refusals.why else why
            return Cause(Reason.PLACEMENT_REFUSED if was_refused else Reason.NO_MATCHING_NODE, why)
        if (permanent := self._permanent_cause(kind, pool, candidates)) is not None:
            return permanent
        fitting = self._fitting(demand, candidates)
        if not fitting:
            lack = self._largest_free(demand, pool, candidates)
            return Cause(Reason.INSUFFICIENT_GPU, f"{kind.needs(gpu_text(demand))}; {lack}")
        return self._cause_beside_cards(kind, fitting, checks_affinity=checks_affinity)

    def _cause_beside_cards(
        self, kind: PodKind, fitting: Sequence[int], *, checks_affinity: bool
    ) -> Cause | None:
        """What one such pod lacks on every node with enough free cards; None if it lacks nothing
        on one of them."""
        pod, now = kind.pod, self.places.sim.now
        having = [ix for ix in fitting if now.fits_counted(ix, pod.demand)]
        if not having:
            return self._counted_shortage(kind, fitting)
        hosts = [ix for ix in having if fits_host(now, ix, pod.demand)]
        if not hosts:
            return self._host_shortage(kind, having)
        if checks_affinity and not self.places.pod_affinity.allowed(pod, array("i", hosts), "now"):
            needs = kind.needs(main_text(pod.demand))
            nodes = "the one node" if len(hosts) == 1 else f"the {len(hosts)} nodes"
            why = f"{needs}; pod affinity or anti-affinity bars it from {nodes} with room"
            return Cause(Reason.POD_AFFINITY_UNMET, why)
        return None

    def _fitting(self, demand: Demand, candidates: "array[int]") -> list[int]:
        """The candidates whose free cards fit the demand."""
        cards = self.places.sim.now.cards
        fits = bytearray(len(cards))
        kernel.fit_nodes(cards, demand, fits)
        return [ix for ix in candidates if fits[ix]]

    def _permanent_cause(self, kind: PodKind, pool: str, candidates: "array[int]") -> Cause | None:
        """Why the empty candidates, and nodes that the pool may add, do not hold these pods; None
        if they do, or if only MIG instances or the like are missing."""
        demand, elastic = kind.pod.demand, self.places.pools[pool].elastic
        n_held = self.bound.count(Shape(demand, kind.pod.constraints, kind.count), pool)
        if n_held == kind.count or (elastic is not None and fits_new_node(elastic, demand)):
            return None
        if n_held:
            return self._too_many(kind, n_held, pool, candidates)
        if demand.devices and (lack := self._card_shortage(demand, pool, candidates)):
            why = f"{kind.needs(gpu_text(demand))}; {lack}"
            return Cause(Reason.INSUFFICIENT_GPU, why, is_permanent=True)
        cards_only, table = replace(bare(demand), counted=()), self.places.sim.now
        having = [ix for ix in candidates if empty_capacity(table, ix, cards_only)]
        beside = " with enough GPUs" if demand.devices else ""
        lack = f"a node{beside} has at most {{}} when empty"
        why = self._host_lack(kind, having, (table.cpu_milli, table.memory_mib), lack)
        return Cause(Reason.INSUFFICIENT_NODE_RESOURCES, why, is_permanent=True) if why else None

    def _too_many(
        self, kind: PodKind, n_held: int, pool: str, candidates: "array[int]"
    ) -> Cause | None:
        """Why the empty candidates hold only `n_held` of these pods."""
        demand = kind.pod.demand
        if demand.counted:
            return None
        of_cards = Shape(bare(demand), kind.pod.constraints, kind.count)
        is_host = self.bound.count(of_cards, pool) == kind.count
        reason = Reason.INSUFFICIENT_NODE_RESOURCES if is_host else Reason.INSUFFICIENT_GPU
        needs = kind.needs(full_text(demand) if is_host else gpu_text(demand))
        holds = "holds" if len(candidates) == 1 else "hold"
        nodes = self._nodes_text(pool, candidates)
        why = f"{needs}; {nodes} {holds} {n_held} of them when empty"
        return Cause(reason, why, is_permanent=True)

    def _card_shortage(self, demand: Demand, pool: str, candidates: "array[int]") -> str:
        """Which GPUs even the empty candidates lack, as text; empty if none."""
        cards = self.places.sim.now.cards
        large = max(candidates, key=cards.capacity_milli.__getitem__)
        most = cards.capacity_milli[large] // MILLI_PER_GPU
        if most == 0:
            counted = self.places.sim.now.free_counted
            is_cut = any(mig_slices(name) for ix in candidates for name in counted[ix] or ())
            none = "there are none but MIG instances" if is_cut else "there is none"
            return f"{none} on {self._nodes_text(pool, candidates)}"
        if most < demand.devices:
            return f"the largest node has {most} ({cards.names[large]})"
        large = max(candidates, key=cards.card_mib.__getitem__)
        mib = cards.card_mib[large]
        if mib < demand.gpu_memory_mib:
            return f"the largest has {mib} MiB ({cards.names[large]})"
        return ""

    def _largest_free(self, demand: Demand, pool: str, candidates: "array[int]") -> str:
        """The largest free GPU amount on any candidate now, as text."""
        cards = self.places.sim.now.cards
        is_whole = demand.milli == MILLI_PER_GPU
        if demand.devices > 1:
            n, ix = self._most(lambda n: replace(demand, devices=n), demand.devices, candidates)
            if n:
                at_most = f"at most {n} of one node has so much free"
                return f"{f'most free on one is {n}' if is_whole else at_most} ({cards.names[ix]})"
        if mib := demand.gpu_memory_mib:
            n, ix = self._most(lambda n: Demand(devices=1, gpu_memory_mib=n), mib, candidates)
            most = f"{n} MiB"
        else:
            n, ix = self._most(lambda n: Demand(devices=1, milli=n), demand.milli, candidates)
            most = f"{format_gpus(n)} of a GPU"
        if n == 0:
            n_cards = sum(cards.capacity_milli[ix] for ix in candidates) // MILLI_PER_GPU
            return f"all {n_cards} GPUs of {self._nodes_text(pool, candidates)} are taken"
        free = cards.free_of(ix)
        card = max(range(len(free)), key=free.__getitem__)
        return f"largest free is {most} ({cards.names[ix]}/gpu{card})"

    def _most(
        self, of: Callable[[int], Demand], top: int, candidates: "array[int]"
    ) -> tuple[int, int]:
        """The largest amount below `top` that fits a candidate's cards, and the first such
        candidate; (0, -1) if there is none."""
        low, high, first = 0, top, -1
        # Invariant: `low` is 0 or fits on `first`, `high` fits nowhere.
        while high - low > 1:
            middle = (low + high) // 2
            fitting = self._fitting(of(middle), candidates)
            if fitting:
                low, first = middle, fitting[0]
            else:
                high = middle
        return low, first

    def _nodes_text(self, pool: str, candidates: "array[int]") -> str:
        """The candidates, as text."""
        n, n_ready = len(candidates), len(self.places.node_filter.ready(pool))
        nodes = "node" if n == 1 else "nodes"
        if n == n_ready:
            return f"the {n} ready {nodes} of pool {pool}"
        return f"the {n} {nodes} (of {n_ready} in pool {pool}) that it may use"

    def _counted_shortage(self, kind: PodKind, fitting: Sequence[int]) -> Cause:
        """Which counted resource is short on every node with enough free cards."""
        table, demand = self.places.sim.now, kind.pod.demand
        most = {
            name: max((table.free_counted[ix] or {}).get(name, 0) for ix in fitting)
            for name, _ in demand.counted
        }
        name, n = max(demand.counted, key=lambda counted: counted[1] - most[counted[0]])
        is_mig = mig_slices(name) > 0
        reason = Reason.INSUFFICIENT_GPU if is_mig else Reason.INSUFFICIENT_NODE_RESOURCES
        if most[name] >= n:
            asked = " and ".join(f"{n} {name}" for name, n in demand.counted)
            return Cause(reason, f"{kind.needs(asked)}; no node has all of that free together")
        beside = " that has the GPUs" if demand.devices else ""
        lack = f"one node{beside} has at most {most[name]} {name} free"
        return Cause(reason, f"{kind.needs(f'{n} {name}')}; {lack}")

    def _host_shortage(self, kind: PodKind, having: Sequence[int]) -> Cause:
        """Which of CPU, memory and pod slots is short on every node with all else free."""
        now, beside = self.places.sim.now, " with its GPUs free" if kind.pod.demand.devices else ""
        columns = now.free_cpu_milli, now.free_memory_mib, now.free_pods
        why = self._host_lack(kind, having, columns, f"a node{beside} has at most {{}}")
        if not why:
            needs = kind.needs(host_text(kind.pod.demand))
            why = f"{needs}; no node{beside} has all of that free together"
        return Cause(Reason.INSUFFICIENT_NODE_RESOURCES, why)

    def _host_lack(
        self, kind: PodKind, having: Sequence[int], columns: "Sequence[array[int]]", lack: str
    ) -> str:
        """The first of CPU, memory and pod slots (`columns`) that all these nodes have too little
        of; `lack` is the text for the most that one has. Empty if there is none."""
        demand, names = kind.pod.demand, self.places.sim.now.cards.names
        asked = (
            (demand.cpu_milli, format_cpus),
            (demand.memory_mib, "{} MiB of memory".format),
            (1, "{} pod slots".format),
        )
        for (amount, in_words), column in zip(asked, columns, strict=False):
            ix = max(having, key=column.__getitem__, default=-1)
            if amount and ix >= 0 and column[ix] < amount:
                most = lack.format(in_words(max(0, column[ix])))
                return f"{kind.needs(in_words(amount))}; {most} ({names[ix]})"
        return ""

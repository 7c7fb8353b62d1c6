"""Why a chunk has no place: the reason that helps most, with what it needs and what there is.

Only what is lacking is named. Worked out once per shapes and pool, since thousands of pods may fail
for the same cause.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from extender.api.demand import Demand, mig_slices
from extender.api.reasons import HELP, Reason, Refused
from extender.api.units import MILLI_PER_GPU, format_cpus, format_gpus
from extender.kernels import nodes as kernel
from extender.policy.placement.capacity_bound import CapacityBound
from extender.policy.placement.placer import Placer, fits_host
from extender.policy.placement.topology import required_rules
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, ShapesKey, key_of, shapes_of
from extender.state.model import PodView, TopologyRule

#: Said, before the pool's name, of work that would not fit if all that runs had left.
NEVER: Final = "it will never start on the nodes of pool"

#: Causes that a required domain may be part of.
_OF_DOMAINS: Final = (
    Reason.INSUFFICIENT_GPU,
    Reason.NO_TOPOLOGY_DOMAIN,
    Reason.POD_AFFINITY_UNMET,
)


def help_for(refused: Refused) -> str:
    """What helps the workload that is refused, in one sentence; empty where nothing is known to."""
    if NEVER in refused.detail:
        return "Ask for less, or for another node pool."
    return HELP.get(refused.reason, "")


@dataclass(slots=True, frozen=True)
class _Cause:
    """Why, in words. `is_for_ever`: it would not fit if all that runs had left."""

    reason: Reason
    why: str
    is_for_ever: bool = False


@dataclass(slots=True, frozen=True)
class _Crowd:
    """One shape of a chunk: a pod of it, how many there are, and how many pods the chunk has."""

    pod: PodView
    count: int
    n_pods: int

    def needs(self, what: str) -> str:
        """The sentence's beginning: what each of them needs."""
        if self.n_pods == 1:
            return f"needs {what}"
        where = f"each of {self.count} pods" if self.count > 1 else f"one of {self.n_pods} pods"
        return f"needs {what} in {where}"


#: A node pool, and shapes.
_Key = tuple[str, ShapesKey]


@dataclass(slots=True)
class Shortages:
    """Explains failures against the nodes as they are now.

    `hopeless` are keys of workloads with their pool where even the empty pool would not do.
    Constraints are kept beside their ids, so that an id can't be used again.
    """

    places: Placer
    bound: CapacityBound
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    _known: dict[_Key, tuple[list[_Crowd], _Cause]] = field(default_factory=dict)

    def explain(
        self, pending: Pending, pool: str, chunk: Sequence[PodView] | None = None
    ) -> Refused:
        """Why the chunk has no place in `pool` now."""
        pods, key = pending.chunk if chunk is None else chunk, pending.workload.key
        cause = self._cause(pending, pool, pods)
        if not cause.is_for_ever:
            return Refused(cause.reason, f"{key}: {cause.why}")
        self.hopeless.add((key, pool))
        return Refused(cause.reason, f"{key}: {cause.why}; {NEVER} {pool}")

    def _cause(self, pending: Pending, pool: str, pods: Sequence[PodView]) -> _Cause:
        rules = list(required_rules(pending.workload, pods))
        key = pool, key_of(shapes_of(pods))
        is_known = not rules and not self.places.pod_affinity.concerns(pods)
        known = self._known.get(key) if is_known else None
        if known is not None:
            return known[1]
        crowds = _crowds(pods)
        cause = self._look(crowds, pods, pool)
        if rules and cause.reason in _OF_DOMAINS:
            cause = self._name_domain(rules, pool, cause)
        if is_known:
            self._known[key] = crowds, cause
        return cause

    def _look(self, crowds: Sequence[_Crowd], pods: Sequence[PodView], pool: str) -> _Cause:
        for crowd in crowds:
            # The peers that small pods need may be the other pods of the chunk.
            cause = self._alone(crowd, pool, minds_others=crowd is crowds[0])
            if cause is not None:
                return cause
        for crowd in crowds:
            cause = self._all_of(crowd, pool)
            if cause is not None:
                return cause
        return self._together(crowds, pods, pool)

    def _alone(self, crowd: _Crowd, pool: str, *, minds_others: bool) -> _Cause | None:
        """Why not even one such pod has a place, or None when it has."""
        pod, node_filter = crowd.pod, self.places.node_filter
        demand, now = pod.demand, self.places.sim.now
        candidates = node_filter.candidates(pool, pod.constraints)
        if not candidates:
            why = node_filter.why_none(pool, pod.constraints)
            if crowd.count < crowd.n_pods:
                why = f"{crowd.needs(_cards(demand) or _host(demand))}; {why}"
            was_refused = pod.refusals.count > 0
            why = f"{why}: {pod.refusals.why}" if pod.refusals.why else why
            return _Cause(Reason.PLACEMENT_REFUSED if was_refused else Reason.NO_MATCHING_NODE, why)
        fitting = self._fitting(demand, candidates)
        if not fitting:
            never = self._lack_for_ever(demand, pool, candidates)
            lack = never or self._most_free(demand, pool, candidates)
            why = f"{crowd.needs(_cards(demand))}; {lack}"
            return _Cause(Reason.INSUFFICIENT_GPU, why, is_for_ever=bool(never))
        having = [ix for ix in fitting if now.fits_counted(ix, demand)]
        if not having:
            return self._lack_of_counted(crowd, fitting)
        hosts = [ix for ix in having if fits_host(now, ix, demand)]
        if not hosts:
            return self._lack_of_host(crowd, having)
        if minds_others and not self.places.pod_affinity.allowed(pod, array("i", hosts), "now"):
            needs = crowd.needs(_cards(demand) or _host(demand))
            nodes = "the one node" if len(hosts) == 1 else f"the {len(hosts)} nodes"
            why = f"{needs}; pod affinity or anti-affinity bars it from {nodes} with room"
            return _Cause(Reason.POD_AFFINITY_UNMET, why)
        return None

    def _all_of(self, crowd: _Crowd, pool: str) -> _Cause | None:
        """Why only some of the pods have places, or None: they all have, or it can't be told."""
        demand = crowd.pod.demand
        if crowd.count == 1 or demand.counted:
            return None
        n_in = self._count(crowd, demand, pool)
        if n_in >= crowd.count:
            return None
        reason, needs = Reason.INSUFFICIENT_GPU, _cards(demand)
        if self._count(crowd, Demand(), pool) < crowd.count:
            reason, needs = Reason.INSUFFICIENT_NODE_RESOURCES, "a pod slot"
        elif not needs or self._count(crowd, _bare(demand), pool) >= crowd.count:
            reason, needs = Reason.INSUFFICIENT_NODE_RESOURCES, _cards_and_host(demand)
        n_ever = self.bound.count(Shape(demand, crowd.pod.constraints, crowd.count), pool)
        if n_ever < crowd.count and self.places.pools[pool].elastic is None:
            nodes = self._nodes(
                pool, self.places.node_filter.candidates(pool, crowd.pod.constraints)
            )
            why = f"{crowd.needs(needs)}; {nodes} hold {n_ever} of them when empty"
            return _Cause(reason, why, is_for_ever=True)
        fit = "fits" if n_in == 1 else "fit"
        return _Cause(reason, f"{crowd.needs(needs)}; only {n_in} of them {fit} at once")

    def _together(self, crowds: Sequence[_Crowd], pods: Sequence[PodView], pool: str) -> _Cause:
        """Why not all of the pods have places at once, although those of each shape have."""
        reason, lack, asked = Reason.INSUFFICIENT_GPU, "", _cards_or_host
        if len(crowds) == 1 and self.places.pod_affinity.concerns(pods):
            reason = Reason.POD_AFFINITY_UNMET
            lack = ", since pod affinity or anti-affinity bars some of them from nodes with room"
        elif not self._fit_at_once(pods, pool) and self._fit_at_once(_bare_of(pods), pool):
            reason, asked = Reason.INSUFFICIENT_NODE_RESOURCES, _cards_and_host
        needs = " and ".join(
            f"{asked(crowd.pod.demand)} in"
            f" {f'each of {crowd.count} pods' if crowd.count > 1 else 'one pod'}"
            for crowd in crowds
        )
        return _Cause(reason, f"needs {needs}; not all of them fit at once{lack}")

    def _fit_at_once(self, pods: Sequence[PodView], pool: str) -> bool:
        """Whether all have places, wherever in the pool."""
        mark = self.places.sim.checkpoint()
        placed = self.places.place_in(pods, pool, "now")
        self.places.sim.rollback(mark)
        return placed is not None

    def _count(self, crowd: _Crowd, demand: Demand, pool: str) -> int:
        """How many such pods fit now, up to as many as there are."""
        candidates = self.places.node_filter.candidates(pool, crowd.pod.constraints)
        counts = array("i", bytes(4 * len(candidates)))
        kernel.count_room(self.places.sim.now, demand, candidates, crowd.count, counts)
        return min(sum(counts), crowd.count)

    def _fitting(self, demand: Demand, candidates: "array[int]") -> list[int]:
        """The candidates with cards that take the demand."""
        cards = self.places.sim.now.cards
        fits = bytearray(len(cards))
        kernel.fit_nodes(cards, demand, fits)
        return [ix for ix in candidates if fits[ix]]

    def _lack_for_ever(self, demand: Demand, pool: str, candidates: "array[int]") -> str:
        """What the candidates would lack if nothing ran on them; empty where that is nothing."""
        cards = self.places.sim.now.cards
        large = max(candidates, key=cards.capacity_milli.__getitem__)
        most = cards.capacity_milli[large] // MILLI_PER_GPU
        if most == 0:
            counted = self.places.sim.now.free_counted
            is_cut = any(mig_slices(name) for ix in candidates for name in counted[ix] or ())
            none = "there are none but MIG instances" if is_cut else "there is none"
            return f"{none} on {self._nodes(pool, candidates)}"
        if most < demand.devices:
            return f"the largest node has {most} ({cards.names[large]})"
        large = max(candidates, key=cards.card_mib.__getitem__)
        mib = cards.card_mib[large]
        if mib < demand.gpu_memory_mib:
            return f"the largest has {mib} MiB ({cards.names[large]})"
        return ""

    def _most_free(self, demand: Demand, pool: str, candidates: "array[int]") -> str:
        """The most that any candidate has free now."""
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
            return f"all {n_cards} GPUs of {self._nodes(pool, candidates)} are taken"
        free = cards.free_of(ix)
        card = max(range(len(free)), key=free.__getitem__)
        return f"largest free is {most} ({cards.names[ix]}/gpu{card})"

    def _most(
        self, of: Callable[[int], Demand], top: int, candidates: "array[int]"
    ) -> tuple[int, int]:
        """The largest figure below `top` for which a candidate has cards, and the first that has;
        (0, -1) where none has."""
        low, high, first = 0, top, -1
        # Invariant: `low` is 0 or fits on `first`, `high` fits nowhere.
        while high - low > 1:
            middle = (low + high) // 2
            having = self._fitting(of(middle), candidates)
            if having:
                low, first = middle, having[0]
            else:
                high = middle
        return low, first

    def _nodes(self, pool: str, candidates: "array[int]") -> str:
        """The candidates, in words."""
        n, n_ready = len(candidates), len(self.places.node_filter.ready(pool))
        nodes = "node" if n == 1 else "nodes"
        if n == n_ready:
            return f"the {n} ready {nodes} of pool {pool}"
        return f"the {n} {nodes} (of {n_ready} in pool {pool}) that it may use"

    def _lack_of_counted(self, crowd: _Crowd, fitting: Sequence[int]) -> _Cause:
        """Which counted resource no node has enough of."""
        table, demand = self.places.sim.now, crowd.pod.demand
        most = {
            name: max((table.free_counted[ix] or {}).get(name, 0) for ix in fitting)
            for name, _ in demand.counted
        }
        name, n = max(demand.counted, key=lambda counted: counted[1] - most[counted[0]])
        is_mig = mig_slices(name) > 0
        reason = Reason.INSUFFICIENT_GPU if is_mig else Reason.INSUFFICIENT_NODE_RESOURCES
        if most[name] >= n:
            asked = " and ".join(f"{n} {name}" for name, n in demand.counted)
            return _Cause(reason, f"{crowd.needs(asked)}; no node has all of that free together")
        beside = " that has the GPUs" if demand.devices else ""
        lack = f"one node{beside} has at most {most[name]} {name} free"
        return _Cause(reason, f"{crowd.needs(f'{n} {name}')}; {lack}")

    def _lack_of_host(self, crowd: _Crowd, having: Sequence[int]) -> _Cause:
        """What of CPU, memory and pod slots the nodes lack that have all else."""
        now, demand = self.places.sim.now, crowd.pod.demand
        beside = " with its GPUs free" if demand.devices else ""
        asked = (
            (demand.cpu_milli, format_cpus, now.free_cpu_milli),
            (demand.memory_mib, "{} MiB of memory".format, now.free_memory_mib),
            (1, "{} pod slots".format, now.free_pods),
        )
        for amount, in_words, free in asked:
            ix = max(having, key=free.__getitem__)
            if amount and free[ix] < amount:
                needs = crowd.needs(in_words(amount))
                name, most = now.cards.names[ix], max(0, free[ix])
                why = f"{needs}; a node{beside} has at most {in_words(most)} ({name})"
                return _Cause(Reason.INSUFFICIENT_NODE_RESOURCES, why)
        why = f"{crowd.needs(_host(demand))}; no node{beside} has all of that free together"
        return _Cause(Reason.INSUFFICIENT_NODE_RESOURCES, why)

    def _name_domain(
        self, rules: Iterable[tuple[TopologyRule, list[PodView]]], pool: str, found: _Cause
    ) -> _Cause:
        """The same with what the topology has to do with it."""
        n_most, has_domain = 0, False
        for rule, pods in rules:
            level = rule.required
            known = [each.label for each in self.places.topologies.levels(rule.topology, pool)]
            if level not in known:
                why = f"topology {rule.topology} has no level {level}"
                return _Cause(Reason.UNKNOWN_TOPOLOGY, why)
            crowd = _crowds(pods)[0]
            room = self.places.roomiest(crowd.pod, pool, rule)
            n_most, has_domain = max(n_most, len(pods)), has_domain or room is not None
            if room is not None and 0 < room < crowd.count:
                needs = crowd.needs(_cards(crowd.pod.demand) or _host(crowd.pod.demand))
                lack = f"no one {level} has a place for all; the roomiest takes {room}"
                why = f"{needs}; {lack} of {crowd.count}"
                is_fixed = self.places.pools[pool].elastic is None
                is_for_ever = is_fixed and not self.bound.allows_together(rule, pods, pool)
                return _Cause(Reason.NO_TOPOLOGY_DOMAIN, why, is_for_ever)
        if n_most <= 1 or not has_domain:
            return found
        levels = " and ".join(dict.fromkeys(rule.required or "" for rule, _ in rules))
        why = f"{found.why}, and they must be together in one {levels}"
        return _Cause(Reason.NO_TOPOLOGY_DOMAIN, why, found.is_for_ever)


def _crowds(pods: Sequence[PodView]) -> list[_Crowd]:
    """A pod of each shape, those first that ask for most of the cards."""
    first: dict[tuple[Demand, int], PodView] = {}
    for pod in pods:
        first.setdefault((pod.demand, id(pod.constraints)), pod)
    found = [
        _Crowd(first[demand, constraints], count, len(pods))
        for demand, constraints, count in key_of(shapes_of(pods))
    ]
    found.sort(key=lambda crowd: -crowd.pod.demand.devices * (crowd.pod.demand.milli or 1))
    return found


def _cards(demand: Demand) -> str:
    """What it asks for of GPUs, as its owner would say it; empty where that is nothing."""
    n = demand.devices
    if n == 0 or (demand.milli == MILLI_PER_GPU and n == 1):
        return "1 GPU" if n else ""
    if demand.milli == MILLI_PER_GPU:
        return f"{n} GPUs on one node"
    several = f"each of {n} GPUs of one node"
    if mib := demand.gpu_memory_mib:
        return f"{mib} MiB of GPU memory on {'one GPU' if n == 1 else several}"
    return f"{format_gpus(demand.milli)} of {'a GPU' if n == 1 else several}"


def _bare(demand: Demand) -> Demand:
    """The demand without CPU and memory."""
    return replace(demand, cpu_milli=0, memory_mib=0)


def _bare_of(pods: Sequence[PodView]) -> list[PodView]:
    """The pods as if they asked for no CPU and memory."""
    return [replace(pod, demand=_bare(pod.demand)) for pod in pods]


def _cards_or_host(demand: Demand) -> str:
    """What it asks for of GPUs, or of nodes if it asks for no GPU."""
    return _cards(demand) or _host(demand)


def _cards_and_host(demand: Demand) -> str:
    """All that it asks for."""
    return " with ".join(each for each in (_cards(demand), _host(demand)) if each)


def _host(demand: Demand) -> str:
    """What it asks for besides GPUs."""
    asked = [f"{n} {name}" for name, n in demand.counted]
    if demand.cpu_milli:
        asked.append(format_cpus(demand.cpu_milli))
    if demand.memory_mib:
        asked.append(f"{demand.memory_mib} MiB of memory")
    return " and ".join(asked) or "a pod slot"

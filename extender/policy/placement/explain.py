"""Why a chunk does not fit: the most useful reason, with the request and what is available.

Only the missing resource is named. The cause is cached per shapes and pool, since thousands of pods
may fail for the same one.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.reasons import HELP, Reason, Refused
from extender.kernels import nodes as kernel
from extender.policy.placement.capacity_bound import CapacityBound
from extender.policy.placement.placer import Placer
from extender.policy.placement.pod_shortage import Cause, PodKind, PodShortage, bare, kinds_of
from extender.policy.placement.request_text import full_text, gpu_text, main_text
from extender.policy.placement.topology import required_rules
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import ShapesKey, key_of, shapes_of
from extender.state.model import PodView, TopologyRule

#: Precedes the pool's name in the message for a workload that does not fit even on empty nodes.
NEVER: Final = "it will never start on the nodes of pool"

#: Causes that a required domain may be part of.
_OF_DOMAINS: Final = (Reason.INSUFFICIENT_GPU, Reason.NO_TOPOLOGY_DOMAIN, Reason.POD_AFFINITY_UNMET)


def help_for(refused: Refused) -> str:
    """One sentence of advice for the refused workload; empty if there is none."""
    if NEVER in refused.detail:
        return "Ask for less, or for another node pool."
    return HELP.get(refused.reason, "")


#: A node pool, and shapes.
_Key = tuple[str, ShapesKey]


@dataclass(slots=True)
class Shortages:
    """Explains failures against the nodes as they are now.

    `hopeless` has the (workload key, pool) pairs for which even the empty pool is too small.
    `_known` keeps the constraints alive, so that their ids are not reused.
    """

    places: Placer
    bound: CapacityBound
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    _known: dict[_Key, tuple[list[PodKind], Cause]] = field(default_factory=dict)
    _of_one: PodShortage = field(init=False)

    def __post_init__(self) -> None:
        self._of_one = PodShortage(self.places, self.bound)

    def explain(
        self, pending: Pending, pool: str, chunk: Sequence[PodView] | None = None
    ) -> Refused:
        """Why the chunk does not fit in `pool` now."""
        pods, key = pending.chunk if chunk is None else chunk, pending.workload.key
        cause = self._cached_cause(pending, pool, pods)
        if not cause.is_permanent:
            return Refused(cause.reason, f"{key}: {cause.why}")
        self.hopeless.add((key, pool))
        return Refused(cause.reason, f"{key}: {cause.why}; {NEVER} {pool}")

    def _cached_cause(self, pending: Pending, pool: str, pods: Sequence[PodView]) -> Cause:
        rules = list(required_rules(pending.workload, pods))
        key = pool, key_of(shapes_of(pods))
        is_known = not rules and not self.places.pod_affinity.concerns(pods)
        known = self._known.get(key) if is_known else None
        if known is not None:
            return known[1]
        kinds = kinds_of(pods)
        cause = self._find_cause(kinds, pods, pool)
        if rules and cause.reason in _OF_DOMAINS:
            cause = self._with_topology(rules, pool, cause)
        if is_known:
            self._known[key] = kinds, cause
        return cause

    def _find_cause(self, kinds: Sequence[PodKind], pods: Sequence[PodView], pool: str) -> Cause:
        for kind in kinds:
            # The affinity peers of the smaller pods may be other pods of the chunk.
            cause = self._of_one.find(kind, pool, checks_affinity=kind is kinds[0])
            if cause is not None:
                return cause
        for kind in kinds:
            cause = self._cause_for_all(kind, pool)
            if cause is not None:
                return cause
        return self._cause_at_once(kinds, pods, pool)

    def _cause_for_all(self, kind: PodKind, pool: str) -> Cause | None:
        """Why only some of these pods fit; None if they all do or if the cause is not known."""
        demand = kind.pod.demand
        if kind.count == 1 or demand.counted:
            return None
        n_in = self._count(kind, demand, pool)
        if n_in >= kind.count:
            return None
        reason, needs = Reason.INSUFFICIENT_GPU, gpu_text(demand)
        if self._count(kind, Demand(), pool) < kind.count:
            reason, needs = Reason.INSUFFICIENT_NODE_RESOURCES, "a pod slot"
        elif not needs or self._count(kind, bare(demand), pool) >= kind.count:
            reason, needs = Reason.INSUFFICIENT_NODE_RESOURCES, full_text(demand)
        fit = "fits" if n_in == 1 else "fit"
        return Cause(reason, f"{kind.needs(needs)}; only {n_in} of them {fit} at once")

    def _cause_at_once(self, kinds: Sequence[PodKind], pods: Sequence[PodView], pool: str) -> Cause:
        """Why the pods do not all fit at once, although the pods of each shape do."""
        reason, lack, text_of = Reason.INSUFFICIENT_GPU, "", main_text
        if not self._fit_at_once(pods, pool):
            if self._fit_without_affinity(pods, pool):
                reason = Reason.POD_AFFINITY_UNMET
                lack = (
                    ", since pod affinity or anti-affinity bars some of them from nodes with room"
                )
            elif self._fit_at_once(_bare_of(pods), pool):
                reason, text_of = Reason.INSUFFICIENT_NODE_RESOURCES, full_text
        needs = " and ".join(
            f"{text_of(kind.pod.demand)} in"
            f" {f'each of {kind.count} pods' if kind.count > 1 else 'one pod'}"
            for kind in kinds
        )
        return Cause(reason, f"needs {needs}; not all of them fit at once{lack}")

    def _fit_without_affinity(self, pods: Sequence[PodView], pool: str) -> bool:
        """Whether pod affinity concerns the pods, and they fit at once if it is ignored."""
        affinity = self.places.pod_affinity
        if not affinity.concerns(pods):
            return False
        try:
            self.places.pod_affinity = affinity.without_terms()
            return self._fit_at_once(pods, pool)
        finally:
            self.places.pod_affinity = affinity

    def _fit_at_once(self, pods: Sequence[PodView], pool: str) -> bool:
        """Whether all pods fit at once, anywhere in the pool."""
        mark = self.places.sim.checkpoint()
        placed = self.places.place_in(pods, pool, "now")
        self.places.sim.rollback(mark)
        return placed is not None

    def _count(self, kind: PodKind, demand: Demand, pool: str) -> int:
        """How many of the `count` pods would fit now with this demand."""
        candidates = self.places.node_filter.candidates(pool, kind.pod.constraints)
        counts = array("i", bytes(4 * len(candidates)))
        kernel.count_room(self.places.sim.now, demand, candidates, kind.count, counts)
        return min(sum(counts), kind.count)

    def _with_topology(
        self, rules: Iterable[tuple[TopologyRule, list[PodView]]], pool: str, found: Cause
    ) -> Cause:
        """The cause `found`, or the topology rule that makes the chunk fail."""
        n_most, has_domain = 0, False
        for rule, pods in rules:
            level = rule.required
            known = [each.label for each in self.places.topologies.levels(rule.topology, pool)]
            if level not in known:
                why = f"topology {rule.topology} has no level {level}"
                return Cause(Reason.UNKNOWN_TOPOLOGY, why)
            kind = kinds_of(pods)[0]
            room = self.places.roomiest(kind.pod, pool, rule)
            n_most, has_domain = max(n_most, len(pods)), has_domain or room is not None
            if room is not None and 0 < room < kind.count:
                needs = kind.needs(main_text(kind.pod.demand))
                lack = f"no one {level} has a place for all; the roomiest takes {room}"
                why = f"{needs}; {lack} of {kind.count}"
                is_fixed = self.places.pools[pool].elastic is None
                is_permanent = is_fixed and not self.bound.allows_together(rule, pods, pool)
                return Cause(Reason.NO_TOPOLOGY_DOMAIN, why, is_permanent)
        if n_most <= 1 or not has_domain:
            return found
        levels = " and ".join(dict.fromkeys(rule.required or "" for rule, _ in rules))
        why = f"{found.why}, and they must be together in one {levels}"
        return Cause(Reason.NO_TOPOLOGY_DOMAIN, why, found.is_permanent)


def _bare_of(pods: Sequence[PodView]) -> list[PodView]:
    """The pods without their requests for CPU and memory."""
    return [replace(pod, demand=bare(pod.demand)) for pod in pods]

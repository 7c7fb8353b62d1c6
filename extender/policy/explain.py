"""Why a chunk has no place: the reason that helps most, with what it needs and what there is.

Worked out once per shape and pool, since thousands of pods may fail for the same cause.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from extender.api.demand import Demand, mig_slices
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU
from extender.kernels import nodes as kernel
from extender.policy.chunks import Pending
from extender.policy.groups import groups_of
from extender.state.model import Constraints, PodView, TopologyRule

if TYPE_CHECKING:
    from extender.policy.place import Places

_Found = tuple[Reason, str]


@dataclass(slots=True)
class Shortages:
    """Explains failures against the nodes as they are now."""

    places: "Places"
    _known: dict[tuple[str, int, Demand, int, bool], tuple[Constraints, _Found]] = field(
        default_factory=dict
    )

    def explain(
        self, pending: Pending, pool: str, chunk: Sequence[PodView] | None = None
    ) -> Refused:
        """Why the chunk has no place in `pool` now."""
        pods = pending.chunk if chunk is None else chunk
        largest = pods[0]
        if len(pods) > 1:
            largest = max(pods, key=lambda pod: pod.demand.devices * (pod.demand.milli or 1))
        rule = _required(pending) if pending.workload.tree is not None else None
        is_picky = self.places.beside.concerns(pods)
        key = pool, id(largest.constraints), largest.demand, len(pods), rule is not None
        known = None if is_picky or rule else self._known.get(key)
        if known is None:
            reason, why = self._look(largest, pool, len(pods))
            if rule is not None and reason in (Reason.INSUFFICIENT_GPU, Reason.NO_TOPOLOGY_DOMAIN):
                reason, why = self._name_domain(rule, pool, (largest, len(pods)), (reason, why))
            known = self._known[key] = largest.constraints, (reason, why)
        reason, why = known[1]
        return Refused(reason, f"{pending.workload.key}: {why}")

    def _look(self, pod: PodView, pool: str, n_pods: int) -> _Found:
        matcher = self.places.matcher
        candidates = matcher.candidates(pool, pod.constraints)
        if not candidates:
            return Reason.NO_MATCHING_NODE, matcher.why_none(pool, pod.constraints)
        needs = describe(pod.demand) + (f" in each of {n_pods} pods" if n_pods > 1 else "")
        fitting = self._fitting(pod.demand, candidates)
        if not fitting:
            return Reason.INSUFFICIENT_GPU, f"needs {needs}; {self._most_cards(pod, candidates)}"
        counted = self._lacking_instances(pod.demand, fitting)
        if counted is not None:
            reason, why = counted
            return reason, f"needs {needs}; {why}"
        hosts = [ix for ix in fitting if self._host_fits(ix, pod.demand)]
        if not hosts:
            return Reason.INSUFFICIENT_NODE_RESOURCES, f"needs {needs}; {self._most_host(fitting)}"
        allowed = self.places.beside.allowed(pod, array("i", hosts), "now")
        if not allowed:
            why = f"pod affinity or anti-affinity bars it from the {len(hosts)} nodes with room"
            return Reason.POD_AFFINITY_UNMET, f"needs {needs}; {why}"
        return Reason.INSUFFICIENT_GPU, f"needs {needs}; not all of them fit at once"

    def _fitting(self, demand: Demand, candidates: "array[int]") -> list[int]:
        """The candidates whose cards take the demand."""
        cards = self.places.sim.now.cards
        fits = bytearray(len(cards))
        kernel.fit_nodes(cards, demand, fits)
        return [ix for ix in candidates if fits[ix]]

    def _most_cards(self, pod: PodView, candidates: "array[int]") -> str:
        """The most that any candidate has of what the pod wants."""
        demand, cards = pod.demand, self.places.sim.now.cards
        if demand.devices > 1:
            # Invariant: `most` cards of one node do, `most` + 1 don't.
            most = demand.devices - 1
            while most and not self._fitting(replace(demand, devices=most), candidates):
                most -= 1
            return f"one node has at most {most} such cards"
        low, high, first = 0, MILLI_PER_GPU + 1, -1
        while high - low > 1:
            middle = (low + high) // 2
            having = self._fitting(Demand(devices=1, milli=middle), candidates)
            if having:
                low, first = middle, having[0]
            else:
                high = middle
        if first < 0:
            return "no card has anything free"
        card = next(c for c, milli in enumerate(cards.free_of(first)) if milli >= low)
        return f"largest free is {low} ({cards.names[first]}/gpu{card})"

    def _lacking_instances(self, demand: Demand, fitting: Iterable[int]) -> _Found | None:
        """The counted resource of which no node has enough, or None."""
        table = self.places.sim.now
        if not demand.counted or any(table.fits_counted(ix, demand) for ix in fitting):
            return None
        most = {
            name: max(((table.free_counted[ix] or {}).get(name, 0) for ix in fitting), default=0)
            for name, _ in demand.counted
        }
        name, n = max(demand.counted, key=lambda counted: counted[1] - most[counted[0]])
        is_mig = mig_slices(name) > 0
        reason = Reason.INSUFFICIENT_GPU if is_mig else Reason.INSUFFICIENT_NODE_RESOURCES
        if most[name] >= n:
            return reason, "no node has all of that free together"
        return reason, f"one node has at most {most[name]} {name} free"

    def _name_domain(
        self, rule: TopologyRule, pool: str, pods: tuple[PodView, int], found: _Found
    ) -> _Found:
        """The same with what the topology has to do with it."""
        pod, n_pods = pods
        level = rule.required
        if level not in {
            known.label for known in self.places.topologies.levels(rule.topology, pool)
        }:
            why = f"topology {rule.topology} has no level {level}"
            return Reason.UNKNOWN_TOPOLOGY, why
        room = self.places.roomiest(pod, pool, rule)
        if room is None or n_pods == 1:
            return found
        why = f"no one {level} has a place for all; the roomiest takes {room} of {n_pods}"
        needs = f"needs {describe(pod.demand)} in each of {n_pods} pods"
        return Reason.NO_TOPOLOGY_DOMAIN, f"{needs}; {why}"

    def _host_fits(self, ix: int, demand: Demand) -> bool:
        now = self.places.sim.now
        return (
            now.free_pods[ix] > 0
            and (demand.cpu_milli == 0 or now.free_cpu_milli[ix] >= demand.cpu_milli)
            and (demand.memory_mib == 0 or now.free_memory_mib[ix] >= demand.memory_mib)
        )

    def _most_host(self, fitting: "list[int] | array[int]") -> str:
        now = self.places.sim.now
        cpu = max(now.free_cpu_milli[ix] for ix in fitting)
        memory = max(now.free_memory_mib[ix] for ix in fitting)
        slots = max(now.free_pods[ix] for ix in fitting)
        return (
            f"nodes with such cards have at most {cpu} milli-CPU, {memory} MiB"
            f" and {slots} pod slots free"
        )


def describe(demand: Demand) -> str:
    """What a pod asks for, as its owner would say it."""
    host = [f"{n} {name}" for name, n in demand.counted]
    host += [
        f"{amount} {unit}"
        for amount, unit in ((demand.cpu_milli, "milli-CPU"), (demand.memory_mib, "MiB of memory"))
        if amount
    ]
    if demand.devices == 0:
        return " and ".join(host) or "a pod slot"
    per_card = (
        f"{demand.gpu_memory_mib} MiB of GPU memory"
        if demand.gpu_memory_mib
        else f"{demand.milli} milli"
    )
    cards = "one GPU" if demand.devices == 1 else f"each of {demand.devices} GPUs of one node"
    return f"{per_card} on {cards}" + (f" with {' and '.join(host)}" if host else "")


def _required(pending: Pending) -> TopologyRule | None:
    """The first rule of the workload's groups, from the root down, that must be kept."""
    tree = pending.workload.tree
    rules = (group.topology for group in groups_of(tree)) if tree is not None else ()
    return next((rule for rule in rules if rule is not None and rule.required), None)

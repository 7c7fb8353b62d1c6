"""Why a chunk has no place: the reason that helps most, with what it needs and what there is.

Worked out once per shape and pool, since thousands of pods may fail for the same cause.
"""

from array import array
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.chunks import Pending
from extender.policy.match import Matcher
from extender.policy.simulation import Simulation
from extender.state.model import Constraints, PodView


@dataclass(slots=True)
class Shortages:
    """Explains failures against the nodes as they are now."""

    sim: Simulation
    matcher: Matcher
    _known: dict[tuple[str, int, Demand, int], tuple[Constraints, Reason, str]] = field(
        default_factory=dict
    )

    def explain(self, pending: Pending, pool: str) -> Refused:
        """Why the chunk has no place in `pool` now."""
        pods = pending.chunk
        largest = max(pods, key=lambda pod: pod.demand.devices * (pod.demand.milli or 1))
        key = pool, id(largest.constraints), largest.demand, len(pods)
        known = self._known.get(key)
        if known is None:
            reason, why = self._look(largest, pool, len(pods))
            known = self._known[key] = largest.constraints, reason, why
        return Refused(known[1], f"{pending.workload.key}: {known[2]}")

    def _look(self, pod: PodView, pool: str, n_pods: int) -> tuple[Reason, str]:
        candidates = self.matcher.candidates(pool, pod.constraints)
        if not candidates:
            return Reason.NO_MATCHING_NODE, f"no ready node of pool {pool} may be used"
        needs = describe(pod.demand) + (f" in each of {n_pods} pods" if n_pods > 1 else "")
        cards = self.sim.now.cards
        fitting = [ix for ix in candidates if self._n_fitting(ix, pod.demand) >= pod.demand.devices]
        if fitting and n_pods > 1 and any(self._host_fits(ix, pod.demand) for ix in fitting):
            return Reason.INSUFFICIENT_GPU, f"needs {needs}; not all of them fit at once"
        if fitting:
            return Reason.INSUFFICIENT_NODE_RESOURCES, f"needs {needs}; {self._most_host(fitting)}"
        if pod.demand.devices > 1:
            best = max(self._n_fitting(ix, pod.demand) for ix in candidates)
            return Reason.INSUFFICIENT_GPU, f"needs {needs}; one node has at most {best} such cards"
        free, ix, card = max(
            ((milli, ix, c) for ix in candidates for c, milli in self._of(ix)),
            key=lambda found: found[0],
            default=(0, 0, 0),
        )
        if free <= 0:
            return Reason.INSUFFICIENT_GPU, f"needs {needs}; no card has anything free"
        where = f"{cards.names[ix]}/gpu{card}"
        return Reason.INSUFFICIENT_GPU, f"needs {needs}; largest free is {free} ({where})"

    def _of(self, ix: int) -> "enumerate[int]":
        return enumerate(self.sim.now.cards.free_of(ix))

    def _n_fitting(self, ix: int, demand: Demand) -> int:
        need = _need(demand, self.sim.now.cards.card_mib[ix])
        return sum(milli >= need for _, milli in self._of(ix)) if need <= MILLI_PER_GPU else 0

    def _host_fits(self, ix: int, demand: Demand) -> bool:
        now = self.sim.now
        return (
            now.free_pods[ix] > 0
            and (demand.cpu_milli == 0 or now.free_cpu_milli[ix] >= demand.cpu_milli)
            and (demand.memory_mib == 0 or now.free_memory_mib[ix] >= demand.memory_mib)
        )

    def _most_host(self, fitting: "list[int] | array[int]") -> str:
        now = self.sim.now
        cpu = max(now.free_cpu_milli[ix] for ix in fitting)
        memory = max(now.free_memory_mib[ix] for ix in fitting)
        slots = max(now.free_pods[ix] for ix in fitting)
        return (
            f"nodes with such cards have at most {cpu} milli-CPU, {memory} MiB"
            f" and {slots} pod slots free"
        )


def describe(demand: Demand) -> str:
    """What a pod asks for, as its owner would say it."""
    host = [
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


def _need(demand: Demand, card_mib: int) -> int:
    return share_milli(demand.gpu_memory_mib, card_mib) if demand.gpu_memory_mib else demand.milli

"""Which pods a request may evict or move, in a form common to consolidate, reclaim and preempt.

The `PreemptionRule` of a stage says which requests it serves and which pods may be evicted for
them. `Eligibility` has the latter as arrays over the candidates, which the kernel reads. Queues
give up work in two tiers: first what is above their first floors, then what is above their second.
A queue has to be above its floors before each unit is evicted, but not afterwards, so a gang that
cannot shrink is evicted whole even if its queue ends lower.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.kernels.sums import sum_units
from extender.policy.preemption.candidates import Candidates
from extender.policy.queues.queue import RESOURCES, Queue
from extender.state.model import Amounts

#: A priority above all others, so that work of any priority is eligible.
ANY_PRIORITY: Final = 1 << 30
#: Values of `Eligibility.is_safe`.
SURPLUS_ONLY: Final = 1
NOTHING: Final = 2
_NO_FLOOR: Final = -(1 << 60)
#: A floor above what any queue holds.
SHUT: Final = 1 << 60


@dataclass(slots=True, eq=False)
class Eligibility:
    """Queues q, workloads w and shapes as in the candidates.

    `tiers` says in how many tiers a queue gives up work (0: in none), while all queues of its path
    are above their floors. `path_start` points into `path`, which has indices of queues; `floors`
    are int64[2 * 3 * n] by tier, queue and resource; a queue without a path has no floors.
    `is_safe` is 1 for pods that may be evicted only as surplus of their workload, 2 for pods that
    may not be evicted. Shapes with `moves` 1 are moved and not evicted, in queues with `is_mobile`
    1. Only workloads below `below_priority` are eligible.
    """

    tiers: bytearray
    path_start: "array[int]"
    path: "array[int]"
    floors: "array[int]"
    is_safe: bytearray
    is_mobile: bytearray
    moves: bytearray
    below_priority: int = ANY_PRIORITY

    def tier_of(self, candidates: Candidates, w: int, amounts: Amounts) -> tuple[int, bool] | None:
        """(tier, whether a queue ends below its floor) in which these amounts of the workload may
        be evicted, or None."""
        if candidates.priority[w] >= self.below_priority:
            return None
        q, has, floors = candidates.queue[w], candidates.has, self.floors
        path = self.path[self.path_start[q] : self.path_start[q + 1]]
        for tier in range(self.tiers[q]):
            if not path:
                return tier, False
            at, is_open, is_below = tier * len(has), False, True
            for r, amount in enumerate(amounts):
                if amount <= 0:
                    continue
                above = min([has[3 * x + r] - floors[at + 3 * x + r] for x in path])
                if above > 0:
                    is_open = True
                    is_below = is_below and amount > above
            if is_open:
                return tier, is_below
        return None

    def followed_by(self, other: "Eligibility", candidates: Candidates) -> "Eligibility":
        """The pods of both, for one plan: in the first tier those of this one, whose queues have
        no floors, and in the second those that `other` gives up of all other queues."""
        n_floors = len(candidates.has)
        tiers, path, is_mobile = other.tiers[:], other.path[:], other.is_mobile[:]
        floors = array("q", [SHUT]) * n_floors + other.floors[n_floors:]
        own = {q for q, n_tiers in enumerate(self.tiers) if n_tiers}
        for q in own:
            tiers[q], is_mobile[q] = self.tiers[q], self.is_mobile[q]
            floors[3 * q : 3 * q + 3] = array("q", [_NO_FLOOR]) * 3
            for at in range(other.path_start[q], other.path_start[q + 1]):
                path[at] = q
        is_safe = other.is_safe[:]
        for w, q in enumerate(candidates.queue):
            if q in own:
                is_eligible = candidates.priority[w] < self.below_priority
                for p in candidates.members[w]:
                    is_safe[p] = self.is_safe[p] if is_eligible else NOTHING
        return replace(
            other, tiers=tiers, path=path, floors=floors, is_safe=is_safe, is_mobile=is_mobile
        )

    def most_freed(self, candidates: Candidates) -> Amounts:
        """An upper bound of what can be evicted; costs one pass over workloads and queues."""
        gpu, cpu, memory = 0, 0, 0
        if not any(self.tiers):
            return gpu, cpu, memory
        # For each queue, what its workloads can free together, and the most that one of them can.
        total = array("q", bytes(8 * len(candidates.has)))
        largest = total[:]
        sum_units(candidates, total, largest)
        for q in range(len(self.tiers)):
            if self.tiers[q]:
                most = self._most_of(
                    candidates, q, total[3 * q : 3 * q + 3], largest[3 * q : 3 * q + 3]
                )
                gpu, cpu, memory = gpu + most[0], cpu + most[1], memory + most[2]
        return gpu, cpu, memory

    def _most_of(
        self, candidates: Candidates, q: int, total: Sequence[int], largest: Sequence[int]
    ) -> Sequence[int]:
        """The bound of one queue: what it has above its lowest floors, and one more unit."""
        path = self.path[self.path_start[q] : self.path_start[q + 1]]
        if not path:
            return total
        at = (self.tiers[q] - 1) * len(candidates.has)
        above = [
            max(
                min(candidates.has[3 * x + r] - self.floors[each + 3 * x + r] for x in path)
                for each in range(0, at + 1, len(candidates.has))
            )
            for r in RESOURCES
        ]
        n_above = sum(each > 0 for each in above)
        if n_above != 1:
            # Work evicted for one resource frees all that it holds of the others as well.
            return total if n_above else (0, 0, 0)
        over = next(r for r in RESOURCES if above[r] > 0)
        return [
            min(total[r], above[r] + largest[r] - 1) if r == over else total[r] for r in RESOURCES
        ]


@dataclass(slots=True)
class EligibilityBuilder:
    """Builds an Eligibility, queue by queue in the order of the candidates' queues."""

    candidates: Candidates
    tiers: bytearray = field(default_factory=bytearray)
    is_mobile: bytearray = field(default_factory=bytearray)
    path_start: "array[int]" = field(default_factory=lambda: array("i", [0]))
    path: "array[int]" = field(default_factory=lambda: array("i"))
    floors: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.floors = array("q", [_NO_FLOOR]) * (2 * len(self.candidates.has))

    def add(self, n_tiers: int, path: Iterable[Queue] = (), *, is_mobile: bool) -> None:
        """Let the next queue give up work in `n_tiers`, while all of `path` exceed their floors."""
        self.tiers.append(n_tiers)
        self.is_mobile.append(is_mobile)
        self.path.extend(self.candidates.queue_ix[queue] for queue in path)
        self.path_start.append(len(self.path))

    def set_floor(self, queue: Queue, tier: int, amounts: Amounts) -> None:
        """Set what the queue keeps in the tier."""
        at = tier * len(self.candidates.has) + 3 * self.candidates.queue_ix[queue]
        self.floors[at : at + 3] = array("q", amounts)

    def finish(self, is_safe: bytearray, below_priority: int = ANY_PRIORITY) -> Eligibility:
        """The eligibility, without moves."""
        return Eligibility(
            tiers=self.tiers,
            path_start=self.path_start,
            path=self.path,
            floors=self.floors,
            is_safe=is_safe,
            is_mobile=self.is_mobile,
            moves=bytearray(len(self.candidates.shapes)),
            below_priority=below_priority,
        )

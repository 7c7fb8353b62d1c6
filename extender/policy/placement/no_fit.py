"""Caches which demands fit no node of a pool, so that they are not searched for again."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.kernels.nodes import FIRST_FIT, best_node
from extender.policy.placement.placer import Placer
from extender.state.model import Constraints


@dataclass(slots=True, eq=False)
class Fullness:
    """Concerns the `later` table. `touched` has the changed nodes in order; the caller appends."""

    places: Placer
    pool: str
    touched: Sequence[int]
    #: Demands that fit no node, with the length of `touched` at the last check. The constraints are
    #: kept alive, so that their id is not reused.
    _known: dict[tuple[Demand, int], tuple[Constraints, int]] = field(default_factory=dict)

    def is_full(self, demand: Demand, constraints: Constraints) -> bool:
        """Whether no node of the pool has room in `later` for a pod with this demand."""
        key, n_touched = (demand, id(constraints)), len(self.touched)
        known = self._known.get(key)
        if known is not None:
            if known[1] == n_touched:
                return True
            nodes = array("i", set(self.touched[known[1] :]))
        elif self.places.pod_affinity:
            return False
        else:
            nodes = self.places.node_filter.candidates(self.pool, constraints)
        if self._has_place(demand, nodes):
            self._known.pop(key, None)
            return False
        self._known[key] = constraints, n_touched
        return True

    def forget(self) -> None:
        """Drop the cache, since any node may have changed."""
        self._known.clear()

    def _has_place(self, demand: Demand, nodes: "array[int]") -> bool:
        later = self.places.sim.later
        if demand.counted:
            nodes = array("i", [ix for ix in nodes if later.fits_counted(ix, demand)])
        return best_node(later, demand, nodes, FIRST_FIT) >= 0

"""What has no place anywhere in a node pool: known as long as nothing changes, without a search."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.kernels.nodes import FIRST_FIT, best_node
from extender.policy.placement.placer import Placer
from extender.state.model import Constraints


@dataclass(slots=True, eq=False)
class Fullness:
    """Of the nodes as they are later. `touched` are those on which anything changed, in order; the
    caller adds to it."""

    places: Placer
    pool: str
    touched: Sequence[int]
    #: The constraints, kept so that their id is not used again, of each demand that had no place
    #: anywhere when so many of the nodes touched had been seen.
    _known: dict[tuple[Demand, int], tuple[Constraints, int]] = field(default_factory=dict)

    def is_full(self, demand: Demand, constraints: Constraints) -> bool:
        """Whether no node of the pool has a place later for a pod that asks for this."""
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
        """Anything may have changed."""
        self._known.clear()

    def _has_place(self, demand: Demand, nodes: "array[int]") -> bool:
        later = self.places.sim.later
        if demand.counted:
            nodes = array("i", [ix for ix in nodes if later.fits_counted(ix, demand)])
        return best_node(later, demand, nodes, FIRST_FIT) >= 0

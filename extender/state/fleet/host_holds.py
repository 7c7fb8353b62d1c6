"""What pods hold of their nodes besides cards: CPU, memory, pod slots and counted resources."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.state.model import Labels
from extender.state.pods.host_hold import HostHold


@dataclass(slots=True)
class Taken:
    """The sum of what pods hold of one node."""

    cpu_milli: int = 0
    memory_mib: int = 0
    n_pods: int = 0
    n_lasting: int = 0
    counted: dict[str, int] = field(default_factory=dict)


class HostHolds:
    """At most one hold per key: a pod's UID, or the key of a reservation."""

    def __init__(self) -> None:
        self._of: dict[str, HostHold] = {}
        self._taken: dict[str, Taken] = {}
        #: By namespace, how many pods without a row have the same labels and node.
        self._without_row: dict[str, Counter[tuple[Labels, str]]] = {}

    def set_hold(self, uid: str, hold: HostHold | None) -> tuple[str, ...]:
        """Replace the hold of this key; returns the nodes with changed sums."""
        before = self._of.pop(uid, None)
        if hold is not None:
            self._of[uid] = hold
        if before == hold:
            return ()
        touched = []
        for changed, sign in ((before, -1), (hold, 1)):
            if changed is not None:
                self._add(changed, sign)
                touched.append(changed.node)
        return tuple(touched)

    def taken(self, node: str) -> Taken:
        """What all pods hold of the node. Callers must not change it."""
        return self._taken.get(node) or Taken()

    def holds(self) -> Mapping[str, HostHold]:
        """Every hold by its key. Callers must not change it."""
        return self._of

    def without_row(self, namespace: str) -> Mapping[tuple[Labels, str], int]:
        """How many bound pods without a row there are, by their labels and node. Callers must not
        change it."""
        return self._without_row.get(namespace, {})

    def validate(self) -> None:
        """Assert that the stored sums match the holds."""
        fresh = HostHolds()
        for uid, hold in self._of.items():
            fresh.set_hold(uid, hold)
        assert fresh._taken == self._taken
        assert fresh._without_row == self._without_row

    def _add(self, hold: HostHold, sign: int) -> None:
        taken = self._taken.setdefault(hold.node, Taken())
        taken.cpu_milli += sign * hold.cpu_milli
        taken.memory_mib += sign * hold.memory_mib
        taken.n_pods += sign
        taken.n_lasting += sign * hold.is_lasting
        for resource, n in hold.counted:
            left = taken.counted.get(resource, 0) + sign * n
            if left:
                taken.counted[resource] = left
            else:
                taken.counted.pop(resource, None)
        if taken.n_pods == 0:
            del self._taken[hold.node]
        if hold.namespace:
            counts = self._without_row.setdefault(hold.namespace, Counter())
            counts[hold.labels, hold.node] += sign
            if not counts[hold.labels, hold.node]:
                del counts[hold.labels, hold.node]
            if not counts:
                del self._without_row[hold.namespace]

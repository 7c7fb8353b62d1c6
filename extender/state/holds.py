"""What pods take of their nodes besides cards: CPU, memory and pod slots, summed per node."""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.state.pods import HostHold


@dataclass(slots=True)
class Taken:
    """The sum of what pods take of one node."""

    cpu_milli: int = 0
    memory_mib: int = 0
    n_pods: int = 0


class HostHolds:
    """At most one hold per pod, by UID."""

    def __init__(self) -> None:
        self._of: dict[str, HostHold] = {}
        self._taken: dict[str, Taken] = {}

    def set_hold(self, uid: str, hold: HostHold | None) -> tuple[str, ...]:
        """Replace what the pod holds; returns the nodes whose sums changed."""
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
        """What all pods take of the node. Not to be changed."""
        return self._taken.get(node) or Taken()

    def holds(self) -> Mapping[str, HostHold]:
        """Every hold by UID. Not to be changed."""
        return self._of

    def validate(self) -> None:
        """Assert that the sums are the sums of the holds."""
        fresh = HostHolds()
        for uid, hold in self._of.items():
            fresh.set_hold(uid, hold)
        assert fresh._taken == self._taken

    def _add(self, hold: HostHold, sign: int) -> None:
        taken = self._taken.setdefault(hold.node, Taken())
        taken.cpu_milli += sign * hold.cpu_milli
        taken.memory_mib += sign * hold.memory_mib
        taken.n_pods += sign
        if taken.n_pods == 0:
            del self._taken[hold.node]

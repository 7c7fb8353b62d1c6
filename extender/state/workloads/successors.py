"""Which pods may take the place that is kept for the successor of a moved pod."""

from extender.api.demand import Demand
from extender.api.kinds import Row
from extender.state.model import PodView
from extender.state.pods.facts import PodFacts


def suits(row: Row, facts: PodFacts, pod: PodView) -> bool:
    """Whether the pod is made by the same owner for the same group, and asks for the same."""
    if row.move is None or pod.is_terminating or pod.other_gates or facts.problem is not None:
        return False
    return (facts.owner, facts.group) == (row.move.owner, row.group) and _asks(pod.demand, row)


def _asks(demand: Demand, row: Row) -> bool:
    """Whether the row's place is just what the demand needs."""
    assert row.move is not None
    host = row.move.cpu_milli, row.move.memory_mib
    if host != (demand.cpu_milli, demand.memory_mib) or dict(demand.counted) != row.counted:
        return False
    if len(row.cards) != demand.devices:
        return False
    if demand.gpu_memory_mib:
        return all(card.memory_mib == demand.gpu_memory_mib for card in row.cards)
    return all(card.milli == demand.milli for card in row.cards)

"""Which pods may use the reservation for the successor of a moved pod."""

from extender.api.demand import Demand
from extender.api.kinds import Row
from extender.state.model import PodView
from extender.state.pods.facts import PodFacts


def can_succeed(row: Row, facts: PodFacts, pod: PodView) -> bool:
    """Whether the pod has the owner, the group and the requests of the row's moved pod."""
    if row.move is None or pod.is_terminating or pod.other_gates or facts.problem is not None:
        return False
    is_like_moved = (facts.maker_uid, facts.group) == (row.move.owner, row.group)
    return is_like_moved and _matches(pod.demand, row)


def _matches(demand: Demand, row: Row) -> bool:
    """Whether the row reserves exactly what the demand requests."""
    assert row.move is not None
    host = row.move.cpu_milli, row.move.memory_mib
    if host != (demand.cpu_milli, demand.memory_mib) or dict(demand.counted) != row.counted:
        return False
    if len(row.cards) != demand.devices:
        return False
    if demand.gpu_memory_mib:
        return all(card.memory_mib == demand.gpu_memory_mib for card in row.cards)
    return all(card.milli == demand.milli for card in row.cards)

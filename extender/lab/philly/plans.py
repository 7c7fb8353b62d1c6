"""Reads a plan as steps for the jobs of a replay: which stop, which move, which start where.

The only module of the replay that reads a `Plan`. Victims terminate at once here, so a nomination
is as good as a reservation.
"""

from dataclasses import dataclass, field

from extender.policy.plan import Placement, Plan

#: New places of a job's pods, by the pod's UID.
Places = dict[str, Placement]


@dataclass(slots=True)
class Steps:
    """The steps by workload key: stopped and moved jobs release their cards before any start.

    `stops` and `moves` name the beneficiary (a key; empty if there is none); a job in `moves`
    continues with the new `places` of some or all of its pods, a job in `starts` starts with all of
    its own.
    """

    stops: dict[str, str] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)
    places: dict[str, Places] = field(default_factory=dict)
    starts: dict[str, Places] = field(default_factory=dict)

    @property
    def has_victims(self) -> bool:
        """Whether any running job is stopped or moved."""
        return bool(self.stops or self.moves)


def read_plan(plan: Plan) -> Steps:
    """The steps of the plan. Asserts that jobs start and stop whole, as every job is a gang."""
    steps = Steps()
    for move in plan.moves:
        steps.moves[move.workload] = move.beneficiary
        steps.places.setdefault(move.workload, {})[move.pod.uid] = move.placement
    for eviction in plan.evictions:
        steps.stops[eviction.workload] = eviction.beneficiary
    for admission in plan.admissions:
        places = steps.starts.setdefault(admission.workload.key, {})
        places.update({placed.pod.uid: placed for placed in admission.placements})
        n_pods = len(admission.workload.pods)
        assert len(places) == n_pods, f"{admission.workload.key} was given a part of its pods"
    assert not steps.moves.keys() & steps.stops.keys(), "a job is moved or stopped, not both"
    assert not plan.drops, "nothing is nominated for longer than one plan"
    return steps

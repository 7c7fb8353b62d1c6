"""What a plan means for the jobs of a replay: which stop, which move, which start where.

The only module of the replay that reads a `Plan`. Victims leave at once here, so a place that was
nominated until they are gone is as good as a reserved one.
"""

from dataclasses import dataclass, field

from extender.policy.plan import Placement, Plan

#: New places of a job's pods, by the pod's UID.
Places = dict[str, Placement]


@dataclass(slots=True)
class Steps:
    """What to do, by workload key: all that stop or move leave their places before any is taken.

    `stops` and `moves` name the beneficiary (a key; empty: there is none); a job in `moves` goes on
    with the new `places` of some or all of its pods, a job in `starts` begins with all of its own.
    """

    stops: dict[str, str] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)
    places: dict[str, Places] = field(default_factory=dict)
    starts: dict[str, Places] = field(default_factory=dict)

    @property
    def has_victims(self) -> bool:
        """Whether anything that runs is stopped or moved."""
        return bool(self.stops or self.moves)


def read_plan(plan: Plan) -> Steps:
    """The steps of the plan. Jobs start and stop whole: that is asserted, every job is a gang."""
    steps = Steps()
    for move in plan.moves:
        steps.moves[move.workload] = move.beneficiary
        steps.places.setdefault(move.workload, {})[move.placement.pod.uid] = move.placement
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

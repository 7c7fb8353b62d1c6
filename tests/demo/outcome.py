"""The result of the demonstration."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """The result. None: the event did not happen in time. `notes`: deviations from the story."""

    submitted: int = 0
    borrowed_milli: int = 0
    reclaim_s: float | None = None
    whole_node_s: float | None = None
    moved: int = 0
    urgent_s: float | None = None
    preempted: int = 0
    #: Number of Jobs at the end, and the failed ones with their reasons.
    n_jobs: int = 0
    failed_jobs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

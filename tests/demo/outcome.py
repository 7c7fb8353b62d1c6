"""What the demonstration came to."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """What is told at the end. None: it did not happen in time. `notes`: what was not as told."""

    submitted: int = 0
    borrowed_milli: int = 0
    reclaim_s: float | None = None
    whole_node_s: float | None = None
    moved: int = 0
    urgent_s: float | None = None
    preempted: int = 0
    #: Jobs that were there at the end, and those among them that had failed, with the reason.
    n_jobs: int = 0
    failed_jobs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

"""The report of `ballast shadow`, as JSON has it: GPUs are decimal strings, times RFC 3339."""

from typing import Literal

from msgspec import field

from extender.view.answers import Answer

#: What became of work that waited: in the cluster as it was, by the last look.
Outcome = Literal["started", "waits", "gone"]


class ShadowProject(Answer, kw_only=True):
    """One project, over all node pools: averages over the looks, in GPUs.

    `held` and `waiting` are of the cluster; `ballast_held` and `ballast_waiting` what they would be
    once the decision of the same moment is carried out.
    """

    project: str
    quota: str
    limit: str = ""
    owed: str
    held: str
    ballast_held: str
    waiting: str
    ballast_waiting: str


class ShadowWork(Answer, kw_only=True):
    """One wait of a workload that some look saw, and what became of it.

    `ballast_seconds` is how long it would have waited until the first decision with a place for it;
    absent where there was none, and at most so long where that was the first look. `message` is
    where that place was, or why there was none.
    """

    workload: str
    project: str
    pods: int
    request: str
    waits_since: str
    seconds: int
    outcome: Outcome
    ballast_seconds: int | None = None
    ballast_at_first_look: bool = False
    message: str = ""
    #: Projects whose work would be stopped or moved for it, and how many pods of each.
    taken: dict[str, int] = field(default_factory=dict)


class ShadowStop(Answer, kw_only=True):
    """Pods of one workload that a decision would stop or move, and the workload it is for.

    `lost` are the GPU-hours of work that have to be done again, by the first such decision.
    """

    what: Literal["stops", "moves"]
    workload: str
    project: str
    pods: int
    request: str
    beneficiary: str
    lost: str
    message: str
    time: str


class ShadowLook(Answer, kw_only=True):
    """One look, in GPUs: `idle` are those free on ready nodes."""

    time: str
    held: str
    ballast_held: str
    waiting: str
    ballast_waiting: str
    idle: str


class Assumption(Answer, kw_only=True):
    """One assumption, and the largest number of objects it applied to in any look."""

    count: int
    text: str


class ShadowReport(Answer, kw_only=True):
    """What Ballast would have decided in the time from the first look to the last.

    `idle_while_waiting` is the average of idle GPUs over the looks at which work waited, and
    `ballast_idle_while_waiting` what would be left of them. `waited`, `would_start`, `would_stop`
    and `would_move` count workloads, each once; `work` and `stops` have up to 5,000 lines, and
    `left_out`, `stops_left_out` and `moves_left_out` count those that they have not.
    """

    kind: str = "ShadowReport"
    since: str
    until: str
    looks: int
    looks_with_waiting: int
    gpus: str
    nodes: int
    idle_while_waiting: str
    ballast_idle_while_waiting: str
    projects: list[ShadowProject] = field(default_factory=list)
    work: list[ShadowWork] = field(default_factory=list)
    stops: list[ShadowStop] = field(default_factory=list)
    series: list[ShadowLook] = field(default_factory=list)
    not_known: list[Assumption] = field(default_factory=list)
    is_by_namespace: bool = False
    waited: int = 0
    would_start: int = 0
    would_stop: int = 0
    would_move: int = 0
    left_out: int = 0
    stops_left_out: int = 0
    moves_left_out: int = 0

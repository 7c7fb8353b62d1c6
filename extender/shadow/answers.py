"""The report of `ballast shadow`, as JSON has it: GPUs are decimal strings, times RFC 3339."""

from typing import Literal

from msgspec import field

from extender.view.answers import Answer

#: What happened to a pending workload in the actual cluster, by the last look.
Outcome = Literal["started", "waits", "gone"]


class ShadowProject(Answer, kw_only=True):
    """One project, over all node pools: averages over the looks, in GPUs.

    `held` and `waiting` are the cluster's; `ballast_held` and `ballast_waiting` are the same after
    the decision of that moment is carried out.
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
    """One wait of a workload that a look saw, and its outcome.

    `ballast_seconds` is the wait until the first decision that placed it; absent without one, and
    an upper bound if that was the first look. `message` says where it was placed, or why it was
    not.
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
    #: Projects whose pods would be stopped or moved for it, and the number of pods of each.
    taken: dict[str, int] = field(default_factory=dict)


class ShadowStop(Answer, kw_only=True):
    """Pods of one workload that a decision would stop or move, and the beneficiary.

    `lost` are the GPU-hours of work that have to be repeated, by the first such decision.
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
    """One look, in GPUs: `idle` are free ones on ready nodes."""

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
    """Ballast's decisions in the time from the first look to the last.

    `idle_while_waiting` is the average of idle GPUs over the looks with pending workloads, and
    `ballast_idle_while_waiting` the part that would remain idle. `waited`, `would_start`,
    `would_stop` and `would_move` count workloads, each once; `work` and `stops` have up to 5,000
    lines, and `left_out`, `stops_left_out` and `moves_left_out` count further ones.
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

"""What the API `view.ballast.dev/v1alpha1` answers: objects as Kubernetes' clients read them.

GPUs are decimal strings ("2.5"), as in the status of our kinds; times are RFC 3339.
"""

from typing import Any, Final, Literal

import msgspec

GROUP: Final = "view.ballast.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

#: `never`: no node of its pools could hold it, or no limit would let it, whatever leaves.
State = Literal["runs", "starting", "waits", "never"]
#: `starts`: the decision has a place for it, once what it stops or moves is gone. `never`: it can't
#: run as it is. `not ours`: none of its pods requests GPUs, so kube-scheduler alone places it.
Prospects = Literal["starts", "waits", "never", "not ours"]
#: What can be said of when a workload starts; `extender.view.forecast` has the rules.
Word = Literal["promised", "forecast", "no forecast"]
Outcome = Literal["yes", "no", "not tried"]


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all answers: fields are written as Kubernetes writes them, empty ones left out."""


def _always(value: str) -> str:
    """A default that is written, unlike others: clients refuse objects without a kind."""
    made: str = msgspec.field(default_factory=lambda: value)
    return made


def _no_items() -> list[Any]:
    """As `_always`: a list is told by its items."""
    return []


class Metadata(Answer):
    """The part of ObjectMeta that an answer has."""

    name: str = ""
    namespace: str = ""


class AsOf(Answer):
    """Which picture the answer was made from: its time, and the newest version of a pod in it."""

    time: str
    resource_version: str


class Check(Answer):
    """One way to a place, and why the workload does not get it that way."""

    name: str
    outcome: Outcome
    message: str


class WayOut(Answer):
    """A change with which the workload starts now: it was tried on this moment's cluster.

    `effect` says what else the change brings about, by project; empty where that is nothing.
    """

    change: str
    effect: str = ""


class QueueFigures(Answer):
    """What a queue may have and has in one node pool, in GPUs. `gpu_hours_per_month` is its budget,
    and `gpu_hours_used` what it used of it this month; empty where that is not known."""

    queue: str
    node_pool: str
    quota: str
    fair_share: str
    held: str
    borrowed: str
    waiting: str
    limit: str = ""
    parent: str = ""
    gpu_hours_per_month: int | None = None
    gpu_hours_used: str = ""


class Place(Answer):
    """How many waiting workloads come before it, itself counted: in its project, and in all."""

    in_project: int
    of_project: int
    in_pool: int
    of_pool: int


class Forecast(Answer):
    """When a workload starts: within the interval; or not known, why, and not before `earliest`.

    Of the last `checked` answers with this word in its project that came due, `held` were true.
    """

    word: Word
    earliest: str = ""
    latest: str = ""
    message: str = ""
    checked: int = 0
    held: int = 0


class Explanation(Answer, kw_only=True):
    """Why a workload waits, and what would let it start.

    `published` is the reason that the controller gave the pods; `agrees` whether it is the same.
    `not_tried` are kinds of ways out for which there was no time.
    """

    api_version: str = _always(API_VERSION)
    kind: str = _always("Explanation")
    metadata: Metadata
    state: State
    workload: str
    pods: int
    waiting_pods: int
    request: str
    work_kind: str
    priority: int
    is_preemptible: bool
    as_of: AsOf
    project: str = ""
    user: str = ""
    node_pools: list[str] = []
    waits_since: str = ""
    reason: str = ""
    message: str = ""
    help: str = ""
    place: Place | None = None
    queue: QueueFigures | None = None
    forecast: Forecast | None = None
    checks: list[Check] = []
    ways_out: list[WayOut] = []
    not_tried: list[str] = []
    nodes: list[str] = []
    others: int = 0
    published: str = ""
    agrees: bool = True


class Waiting(Answer, kw_only=True):
    """One line of a queue. Work of namespaces that were not asked for has no name and no user."""

    position: int
    project: str
    request: str
    pods: int
    reason: str
    workload: str = ""
    is_group: bool = False
    user: str = ""
    work_kind: str = ""
    priority: int = 0
    waits_since: str = ""
    message: str = ""
    forecast: Forecast | None = None
    never: bool = False


class QueueList(Answer, kw_only=True):
    """What waits, in the order in which it has its turn; position 0 has none until it is mended."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("QueueList")
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    as_of: AsOf
    items: list[Waiting] = msgspec.field(default_factory=_no_items)


class ShareList(Answer, kw_only=True):
    """The figures of every department and project in each node pool."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("ShareList")
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    as_of: AsOf
    items: list[QueueFigures] = msgspec.field(default_factory=_no_items)


class Job(Answer, kw_only=True, forbid_unknown_fields=True):
    """Work that might be submitted: `pods` of `gpus` each, all or none together where `gang`."""

    project: str
    gpus: str = "1"
    pods: int = 1
    gang: bool = True
    priority: int | None = None
    user: str = ""


class AddedNodes(Answer, kw_only=True, forbid_unknown_fields=True):
    """`count` further nodes, empty, each as the node `like` is."""

    like: str
    count: int = 1


class WantedPods(Answer, kw_only=True):
    """`count` pods of a pod template, which stands here as in a Job or a Workload of Kueue."""

    template: msgspec.Raw
    count: int = 1


class WantedWorkload(Answer, kw_only=True):
    """Work that might be submitted, as pod templates: all pods of all sets are one gang."""

    namespace: str
    name: str
    pod_sets: list[WantedPods]


class SimulationSpec(Answer, kw_only=True, forbid_unknown_fields=True):
    """What is to be different. Quotas and limits are GPUs by project, or by `project/node-pool`;
    budgets are GPU-hours of a month. `workloads` are submitted in the order in which they stand,
    and the status says of each what becomes of it."""

    quotas: dict[str, str] = {}
    limits: dict[str, str] = {}
    budgets: dict[str, int] = {}
    drain: list[str] = []
    add_nodes: list[AddedNodes] = []
    jobs: list[Job] = []
    workloads: list[WantedWorkload] = []


class Change(Answer):
    """What becomes of one workload in one picture and not in the other.

    `what` is `starts`, `waits`, `stops`, `moves` or `cannot move`; `lost` are the GPU-hours of work
    that have to be done again, of what stops or moves.
    """

    what: str
    workload: str
    project: str
    pods: int
    request: str
    message: str = ""
    lost: str = ""


class Prospect(Answer, kw_only=True):
    """What becomes of a workload that was asked about.

    It starts within quota where its project and the queues above hold no more than their quotas
    then. `stops` and `moves` are pods that leave for it. `earliest`: before when it does not start,
    of one that waits, where that can be known (`Forecast`).
    """

    workload: str
    state: Prospects
    project: str = ""
    request: str = ""
    is_within_quota: bool = msgspec.field(default=False, name="withinQuota")
    stops: int = 0
    moves: int = 0
    reason: str = ""
    message: str = ""
    earliest: str = ""


class SimulationStatus(Answer, kw_only=True):
    """How the decision differs from the one without the change; what is lost in GPU-hours."""

    as_of: AsOf
    changes: list[Change] = []
    held_before: str
    held_after: str
    waiting_before: str
    waiting_after: str
    lost_before: str = "0"
    lost_after: str = "0"
    stops: int = 0
    queues: list[QueueFigures] = []
    workloads: list[Prospect] = []


class Simulation(Answer, kw_only=True):
    """A question and its answer; nothing of it is stored."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("Simulation")
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: SimulationSpec = msgspec.field(default_factory=SimulationSpec)
    status: SimulationStatus | None = None


class SnapshotOfCluster(Answer, kw_only=True):
    """The cluster of now as a scenario file, in `scenario`."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("Snapshot")
    metadata: Metadata
    as_of: AsOf
    scenario: dict[str, Any]

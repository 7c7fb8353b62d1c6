"""The objects of the API `view.ballast.dev/v1alpha1`, as Kubernetes clients read them.

GPUs are decimal strings ("2.5"), as in the status of our kinds; times are RFC 3339.
"""

from typing import Any, Final, Literal

import msgspec

GROUP: Final = "view.ballast.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

#: `never`: no node of its pools could hold it, or no limit would allow it, even without other work.
State = Literal["runs", "starting", "waits", "never"]
#: `starts`: the decision places it, once victims and moved pods are gone. `never`: it cannot run as
#: it is. `not ours`: none of its pods requests GPUs, so kube-scheduler alone places it.
Prospects = Literal["starts", "waits", "never", "not ours"]
#: The kind of forecast; `extender.view.forecast` has the rules.
Word = Literal["promised", "forecast", "no forecast"]
Outcome = Literal["yes", "no", "not tried"]


class Answer(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all answers: fields are named as in Kubernetes, and empty ones are left out."""


def _always(value: str) -> str:
    """A default that is always encoded: clients refuse objects without a kind."""
    made: str = msgspec.field(default_factory=lambda: value)
    return made


def _no_items() -> list[Any]:
    """The same for lists, which are recognised by their items."""
    return []


class Metadata(Answer):
    """The fields of ObjectMeta in an answer."""

    name: str = ""
    namespace: str = ""


class AsOf(Answer):
    """The picture of the answer: its time, and the newest version of a pod in it.

    `warning` is a sentence if no controller leads, so that nothing of the answer will happen.
    """

    time: str
    resource_version: str
    warning: str = ""


class Check(Answer):
    """One way to start, and why the workload does not start this way."""

    name: str
    outcome: Outcome
    message: str


class WayOut(Answer):
    """A change with which the workload starts now, as tried on the current cluster.

    `effect` lists further effects of the change, by project; empty if there are none.
    """

    change: str
    effect: str = ""


class QueueFigures(Answer):
    """A queue's quota, limit, shares and use in one node pool, in GPUs. `gpu_hours_per_month` is
    its budget, and `gpu_hours_used` its use this month; empty if unknown."""

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
    """The workload's position in the queue, from 1: in its project, and in its node pools."""

    in_project: int
    of_project: int
    in_pool: int
    of_pool: int


class Forecast(Answer):
    """When a workload starts: an interval, or unknown, with a reason and possibly an `earliest`.

    Of the last `checked` answers with this word in its project that came due, `held` were true.
    """

    word: Word
    earliest: str = ""
    latest: str = ""
    message: str = ""
    checked: int = 0
    held: int = 0


class Explanation(Answer, kw_only=True):
    """Why a workload is pending, and what would let it start.

    `gpu_memory` is the request in MiB or GiB, if all pods request memory of cards; `request` is
    what their queue is charged for it. `queue` has the project's figures in the node pool of its
    running pods, else in the first that it may use, and `other_queues` in its further pools.
    `published` is the reason that the controller gave the pods; `agrees` whether it is the same.
    `not_tried` are kinds of ways out that were not tried for lack of time.
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
    gpu_memory: str = ""
    project: str = ""
    user: str = ""
    node_pools: list[str] = []
    waits_since: str = ""
    reason: str = ""
    message: str = ""
    help: str = ""
    place: Place | None = None
    queue: QueueFigures | None = None
    other_queues: list[QueueFigures] = []
    forecast: Forecast | None = None
    checks: list[Check] = []
    ways_out: list[WayOut] = []
    not_tried: list[str] = []
    nodes: list[str] = []
    others: int = 0
    published: str = ""
    agrees: bool = True


class Waiting(Answer, kw_only=True):
    """One line of a queue. Workloads of other namespaces have no name and no user. `gpu_memory` as
    in an Explanation."""

    position: int
    project: str
    request: str
    pods: int
    reason: str
    gpu_memory: str = ""
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
    """Pending workloads in queue order; position 0 is outside the queue until its owner acts."""

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
    """Work that might be submitted: `pods` of `gpus` each, all or none together if `gang`."""

    project: str
    gpus: str = "1"
    pods: int = 1
    gang: bool = True
    priority: int | None = None
    user: str = ""


class AddedNodes(Answer, kw_only=True, forbid_unknown_fields=True):
    """`count` further empty nodes like the node `like`."""

    like: str
    count: int = 1


class WantedPods(Answer, kw_only=True):
    """`count` pods of a pod template, as in a Job or a Workload of Kueue."""

    template: msgspec.Raw
    count: int = 1


class WantedWorkload(Answer, kw_only=True):
    """Work that might be submitted, as pod templates: all pods of all sets are one gang."""

    namespace: str
    name: str
    pod_sets: list[WantedPods]


class SimulationSpec(Answer, kw_only=True, forbid_unknown_fields=True):
    """The changes to simulate. Quotas and limits are GPUs by project, or by `project/node-pool`;
    budgets are GPU-hours of a month. `workloads` are submitted in this order, and the status has
    the prospect of each."""

    quotas: dict[str, str] = {}
    limits: dict[str, str] = {}
    budgets: dict[str, int] = {}
    drain: list[str] = []
    add_nodes: list[AddedNodes] = []
    jobs: list[Job] = []
    workloads: list[WantedWorkload] = []


class Change(Answer):
    """A difference between the two decisions for one workload.

    `what` is `starts`, `waits`, `stops`, `moves`, `cannot move` or, where it stops or moves only
    without the change, `stays`; `lost` are the GPU-hours of work that stopped or moved
    pods have to repeat.
    """

    what: str
    workload: str
    project: str
    pods: int
    request: str
    message: str = ""
    lost: str = ""


class Prospect(Answer, kw_only=True):
    """What would happen to a workload in question.

    It starts within quota if its project and the queues above then hold no more than their quotas.
    `stops` and `moves` are pods evicted or moved for it. `earliest`: a pending workload does not
    start before this, if that is known (`Forecast`).
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
    """How the decision differs from the one without the changes; losses are in GPU-hours."""

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
    """A question and its answer; it is not stored."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("Simulation")
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: SimulationSpec = msgspec.field(default_factory=SimulationSpec)
    status: SimulationStatus | None = None


class SnapshotOfCluster(Answer, kw_only=True):
    """The current cluster as a scenario file, in `scenario`."""

    api_version: str = _always(API_VERSION)
    kind: str = _always("Snapshot")
    metadata: Metadata
    as_of: AsOf
    scenario: dict[str, Any]

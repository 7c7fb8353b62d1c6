"""A snapshot of the cluster with the decision on it, and changed copies of it.

All pure. A picture makes its decision when it is first needed; a changed copy makes its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from msgspec.structs import replace as replaced

from extender.api.demand import Demand
from extender.api.kinds import Device
from extender.api.listing import listed
from extender.api.units import MILLI_PER_GPU, format_mib
from extender.policy.decide import decide
from extender.policy.plan import Admission, Eviction, Move, Plan, Settings, Stage
from extender.policy.scale_up import ScaleUps, left_waiting, scale_ups
from extender.state.model import (
    GPU,
    UNLIMITED,
    Figures,
    MonthHours,
    PodView,
    PoolQuota,
    WorkloadView,
)
from extender.state.nodes import NodeFacts
from extender.state.snapshot import Snapshot
from extender.state.tally import pod_amounts, smallest_cards

#: The most names that an error message lists.
_MOST_NAMED: Final = 8


class BadChangeError(ValueError):
    """A change names a missing object or is impossible; the message says what is accepted."""


@dataclass(frozen=True)
class Picture:
    """`snapshot` is never modified: every decision works on a copy of its node table."""

    snapshot: Snapshot
    settings: Settings = field(default_factory=Settings)

    @cached_property
    def plan(self) -> Plan:
        """The decision on the snapshot."""
        return self.decided()

    @cached_property
    def without_budgets(self) -> Plan:
        """The decision once disruption budgets no longer delay evictions."""
        if not self.snapshot.budgets:
            return self.plan
        pods = (pod for each in self.snapshot.workloads.values() for pod in each.pods)
        since = {pod.budgets: 0 for pod in pods if pod.budgets}
        return decide(self._copy(), replace(self.settings, held_since=since))

    @cached_property
    def scale_ups(self) -> ScaleUps:
        """Workloads that elastic node pools get new nodes for, and why others get none."""
        return scale_ups(self._copy(), left_waiting(self.plan))

    @cached_property
    def card_sizes(self) -> Mapping[str, int]:
        """MiB of the smallest card of each node pool that has any card."""
        return smallest_cards(self.snapshot.nodes)

    def asked_milli(self, workload: WorkloadView, *, is_waiting_only: bool = False) -> int:
        """Milli-GPU that the workload's pods hold or request, or only those of its pending pods.

        A request in MiB counts as in its queue: by the smallest card of its first node pool.
        """
        mib = self.card_sizes.get(workload.pools[0], 0) if workload.pools else 0
        pods = (p for p in workload.pods if not is_waiting_only or waits(p))
        return sum(pod.held_milli or pod_amounts(pod.demand, mib)[GPU] for pod in pods)

    @property
    def is_decided(self) -> bool:
        """Whether the plan has been computed."""
        return "plan" in vars(self)

    def decided(self, stages: Sequence[Stage] | None = None) -> Plan:
        """The decision by these stages only (None: all)."""
        settings = self.settings if stages is None else replace(self.settings, stages=tuple(stages))
        return decide(self._copy(), settings)

    def changed(
        self,
        *,
        workloads: Iterable[WorkloadView] = (),
        quotas: Mapping[tuple[str, str], int] | None = None,
        limits: Mapping[tuple[str, str], int] | None = None,
        budgets: Mapping[tuple[str, str], int] | None = None,
    ) -> "Picture":
        """With these workloads added or, with a known key, replaced; and, by queue and node pool,
        these quotas and limits in milli-GPU, and monthly budgets in milli-GPU-seconds."""
        snapshot = self._copy()
        snapshot.tally = None
        snapshot.workloads = {**snapshot.workloads, **{each.key: each for each in workloads}}
        queues = dict(snapshot.queues)
        for figures, change in ((quotas, _quota), (limits, _limit), (budgets, _budget)):
            for (name, pool), amount in (figures or {}).items():
                view = queues[name]
                figure = view.pools.get(pool, PoolQuota())
                changed = replace(figure, gpu=change(figure.gpu, amount))
                queues[name] = replace(view, pools={**view.pools, pool: changed})
        snapshot.queues = queues
        return Picture(snapshot, self.settings)

    def drained(self, names: Iterable[str]) -> "Picture":
        """With the nodes cordoned, and their pods pending again unless a disruption budget keeps
        them; pods without a controller are gone. Raises BadChangeError."""
        snapshot = self._copy()
        drained = set(names)
        for name in sorted(drained):
            ix = snapshot.nodes.ix_of(name)
            if ix is None:
                raise BadChangeError(
                    f"there is no GPU node {name!r}{those(snapshot.nodes.cards.names)}"
                )
            snapshot.nodes.is_ready[ix] = 0
        workloads = {}
        for key, workload in snapshot.workloads.items():
            if any(pod.node in drained for pod in workload.pods):
                pods = [
                    pod.after_eviction()
                    if pod.node in drained and not keeper_of(snapshot, pod)
                    else pod
                    for pod in workload.pods
                ]
                kept = tuple(pod for pod in pods if pod is not None)
                if not kept:
                    continue
                workload = replaced(workload, pods=kept)  # noqa: PLW2901
            workloads[key] = workload
        snapshot.workloads, snapshot.tally = workloads, None
        return Picture(snapshot, self.settings)

    def with_nodes(self, like: str, count: int) -> "Picture":
        """With `count` further empty nodes like `like`. Raises BadChangeError."""
        snapshot = self._copy()
        table = snapshot.nodes
        ix = table.ix_of(like)
        if ix is None:
            raise BadChangeError(f"there is no GPU node {like!r}{those(table.cards.names)}")
        n_cards = table.cards.capacity_milli[ix] // MILLI_PER_GPU
        mib, model = table.cards.card_mib[ix], table.cards.model[ix]
        for number in range(count):
            name = f"{like}-added-{number}"
            devices = [Device(index=i, memory_mib=mib, model=model) for i in range(n_cards)]
            facts = NodeFacts(
                name=name,
                pool=table.pool[ix],
                labels={**table.labels[ix], "kubernetes.io/hostname": name},
                taints=table.taints[ix],
                free_cpu_milli=table.cpu_milli[ix],
                free_memory_mib=table.memory_mib[ix],
                cpu_milli=table.cpu_milli[ix],
                memory_mib=table.memory_mib[ix],
            )
            table.add_empty(facts, devices)
        snapshot.tally = None
        return Picture(snapshot, self.settings)

    def _copy(self) -> Snapshot:
        tally = self.snapshot.tally
        return replace(
            self.snapshot, nodes=self.snapshot.nodes.copy(), tally=tally.copy() if tally else None
        )


def those(names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the names that exist."""
    known = listed(sorted(filter(None, names)), _MOST_NAMED)
    return f"; there are: {known}" if known else "; there are none"


def _quota(figures: Figures, milli: int) -> Figures:
    return replace(figures, quota=milli)


def _limit(figures: Figures, milli: int) -> Figures:
    return replace(figures, limit=milli)


def _budget(figures: Figures, milli_s: int) -> Figures:
    """With another budget; the used hours stay, and are unknown if there was no budget."""
    month = figures.month or MonthHours(0)
    return replace(figures, month=replaced(month, budget=milli_s))


def imagined(
    name: str, project: str, namespace: str, milli: int, count: int, **given: object
) -> WorkloadView:
    """A workload that was not submitted: `count` pods that request `milli` each."""
    devices = max(1, milli // MILLI_PER_GPU)
    demand = Demand(devices=devices, milli=min(milli, MILLI_PER_GPU))
    pods = tuple(
        PodView(uid=f"{name}-{i}", namespace=namespace, name=f"{name}-{i}", demand=demand)
        for i in range(count)
    )
    return WorkloadView(
        key=f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        project=project,
        is_group=count > 1,
        pods=pods,
        **given,  # type: ignore[arg-type]
    )


def admission_of(plan: Plan, key: str) -> Admission | None:
    """The workload's admission in the plan, if any."""
    return next((each for each in plan.admissions if each.workload.key == key), None)


def queues_of(snapshot: Snapshot, workload: WorkloadView) -> Iterator[str]:
    """The workload's project, and the queues above it."""
    queue = snapshot.queues.get(workload.project)
    while queue is not None:
        yield queue.name
        queue = snapshot.queues.get(queue.parent)


def starts(plan: Plan, workload: WorkloadView) -> bool:
    """Whether the plan places the workload's minimum, at once or after victims are gone."""
    given = admission_of(plan, workload.key)
    if given is None:
        return False
    live = sum(not waits(pod) for pod in workload.pods)
    return live + len(given.placements) >= workload.min_member


def leaving(plan: Plan) -> list[Eviction | Move]:
    """Every pod that the plan evicts, or moves to another node."""
    return [*plan.evictions, *plan.moves]


def asked_memory(workload: WorkloadView, *, is_waiting_only: bool = False) -> str:
    """The memory of cards that the workload's GPU pods request, or only its pending ones, such as
    `20 GiB`; empty unless all of them request memory."""
    pods = (p for p in workload.pods if not is_waiting_only or waits(p))
    asked = [pod.demand for pod in pods if pod.demand.is_gpu_work]
    is_all = asked and all(demand.gpu_memory_mib for demand in asked)
    return format_mib(sum(each.gpu_memory_mib * each.devices for each in asked)) if is_all else ""


def waits(pod: PodView) -> bool:
    """Whether the pod is pending: not terminating, and with no node on which it could start."""
    return pod.state in ("gated", "nominated") and not pod.is_terminating


def is_limited(milli: int) -> bool:
    """Whether a quota or limit is finite."""
    return milli < UNLIMITED


def keeper_of(snapshot: Snapshot, pod: PodView) -> str:
    """The disruption budget that lets a drain evict no pod like this one, or the empty string."""
    return next((name for name in pod.budgets if snapshot.budgets.get(name, 1) < 1), "")

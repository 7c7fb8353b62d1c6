"""Builders for snapshots: a test describes each object of the cluster in one line.

    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=4)
    cluster.job("a-job", "a", gpus=1, pods=4, on="n0")      # runs there
    cluster.job("b-job", "b", gpus="0.5")                   # waits
    plan = decide(cluster.snapshot())

GPUs are written as users write them (2, "0.5"); times are seconds. A job with more than one pod is
a pod group, else a pod. Its pods are `<name>-0`, `<name>-1`, ...
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, GpuNodeStatus, Row
from extender.api.objects import ObjectMeta, Taint
from extender.api.units import MILLI_PER_GPU, parse_gpus, share_mib, share_milli
from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from extender.state.model import (
    GPU,
    UNLIMITED,
    ElasticView,
    Figures,
    PlacementRule,
    PodView,
    PoolQuota,
    PoolView,
    QueueView,
    WorkloadView,
    department_queue,
)
from extender.state.nodes import NodeFacts, NodeTable
from extender.state.snapshot import Snapshot
from tests.support.snapshot_job import NOW_S, Gpus, Job

#: What a node pool says of the nodes that an autoscaler may add to it.
ELASTIC = ElasticView(
    max_nodes=4,
    n_gpus=8,
    card_mib=16384,
    card_model="A100",
    cpu_milli=64_000,
    memory_mib=1 << 20,
    selector=(),
    labels=(),
    provisioning_class="",
)


@dataclass
class _Node:
    facts: NodeFacts
    cards: list[Device]
    free: list[int]
    rows: list[Row] = field(default_factory=list)


@dataclass
class Cluster:
    """A cluster that a test builds. Projects without a department share one that does not exist."""

    nodes: dict[str, _Node] = field(default_factory=dict)
    pools: dict[str, PoolView] = field(default_factory=dict)
    departments: dict[str, QueueView] = field(default_factory=dict)
    projects: dict[str, QueueView] = field(default_factory=dict)
    workloads: dict[str, WorkloadView] = field(default_factory=dict)
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)

    def pool(
        self,
        name: str,
        placement: PlacementRule = "binpack",
        **view: Any,
    ) -> None:
        """Add a pool. `view`: has_preemption, policy, job_order, cpu_placement."""
        self.pools[name] = PoolView(name, placement, **view)

    def node(self, name: str, gpus: int = 8, **facts: Any) -> None:
        """Add a node. `facts`: pool, labels, taints, is_ready, mib, model, cpu, memory, pods,
        unhealthy cards, free_counted."""
        mib, model = facts.pop("mib", 16384), facts.pop("model", "A100")
        unhealthy = facts.pop("unhealthy", ())
        taints = tuple(Taint(key=key, effect=effect) for key, effect in facts.pop("taints", ()))
        pool = facts.setdefault("pool", "default")
        cpu, memory = facts.pop("cpu", 1 << 40), facts.pop("memory", 1 << 40)
        self.pools.setdefault(pool, PoolView(pool))
        cards = [
            Device(
                index=c,
                memory_mib=mib,
                model=model,
                health="Unhealthy" if c in unhealthy else "Healthy",
            )
            for c in range(gpus)
        ]
        facts.setdefault("cpu_milli", cpu)
        facts.setdefault("memory_mib", memory)
        facts.setdefault("counted", facts.get("free_counted", {}))
        known = NodeFacts(
            name=name,
            taints=taints,
            free_cpu_milli=cpu,
            free_memory_mib=memory,
            free_pods=facts.pop("pods", 110),
            **facts,
        )
        free = [0 if c in unhealthy else MILLI_PER_GPU for c in range(gpus)]
        self.nodes[name] = _Node(known, cards, free)

    def department(self, name: str, quota: Gpus = 0, **queue: Any) -> None:
        name = department_queue(name)
        self.departments[name] = self._queue(name, "", quota, queue, len(self.departments))

    def project(self, name: str, quota: Gpus = 0, **queue: Any) -> None:
        """Add a project. `queue`: department, limit, weight, rank, used (past usage in millionths
        of the pool), min_runtime, pools ({pool: PoolQuota})."""
        department = department_queue(queue.pop("department", "everybody"))
        age = len(self.projects)
        self.projects[name] = self._queue(name, department, quota, queue, age)

    def job(self, name: str, project: str, gpus: Gpus = 1, pods: int = 1, **job: Any) -> None:
        """Add a job of `pods` pods; pods `on` nodes run there. `job`: see `Job`."""
        made = Job(name, project, gpus, pods, **job)
        if made.age is None:
            made.age = 100_000 - 60 * len(self.workloads)
        views = []
        for at in range(made.n_pods):
            node = made.nodes[at] if at < len(made.nodes) else ""
            cards = self._cards(node, made.demand, made.cards) if node else ()
            views.append(made.pod(at, node, cards))
            if node:
                self._hold(node, views[-1], project)
        self.workloads[f"ns/{name}"] = made.workload(views)

    def snapshot(self, *, is_reversed: bool = False) -> Snapshot:
        """The snapshot; if reversed, with all lists in reverse order."""
        table = NodeTable()
        names = list(self.nodes)[::-1] if is_reversed else list(self.nodes)
        for name in names:
            node = self.nodes[name]
            table.set_node(node.facts)
            table.set_cards(
                GpuNode(
                    metadata=ObjectMeta(name=name),
                    spec=GpuNodeSpec(rows=list(node.rows)),
                    status=GpuNodeStatus(devices=node.cards),
                )
            )

        def listed(of: dict[str, Any]) -> dict[str, Any]:
            return dict(reversed(of.items())) if is_reversed else dict(of)

        workloads = listed(self.workloads)
        if is_reversed:
            for key, view in workloads.items():
                workloads[key] = replace(view, pods=view.pods[::-1])
        return Snapshot(
            now_s=NOW_S,
            nodes=table,
            pools=listed(self.pools),
            queues=listed({**self.departments, **self.projects}),
            workloads=workloads,
            topologies=self.topologies,
            budgets=dict(self.budgets),
        )

    def _queue(
        self, name: str, parent: str, quota: Gpus, queue: dict[str, Any], age: int
    ) -> QueueView:
        limit = queue.pop("limit", None)
        milli = parse_gpus(quota)
        weight = queue.pop("weight", 1 if parent else milli or 1)
        figures = PoolQuota(
            Figures(
                milli,
                UNLIMITED if limit is None else parse_gpus(limit),
                weight,
                queue.pop("used", 0),
            ),
            rank=queue.pop("rank", 0 if parent or milli else 1),
        )
        pools = queue.pop("pools", None) or {"default": figures}
        view = QueueView(
            name=name,
            parent=parent,
            created_at=age,
            pools=pools,
            reclaim_min_runtime_s=queue.pop("min_runtime", None),
            disruption_budget_s=queue.pop("budget_s", None),
        )
        assert not queue, f"unknown: {sorted(queue)}"
        return view

    def _cards(
        self, node: str, demand: Demand, cards: Sequence[int] | None
    ) -> tuple[CardShare, ...]:
        card_mib = self.nodes[node].cards[0].memory_mib if self.nodes[node].cards else 0
        milli, mib = demand.milli, share_mib(demand.milli, card_mib)
        if demand.gpu_memory_mib:
            milli, mib = share_milli(demand.gpu_memory_mib, card_mib), demand.gpu_memory_mib
        free = self.nodes[node].free
        # As in the scenario format, running pods without named cards have cards of their own.
        own = [c for c, left in enumerate(free) if left == MILLI_PER_GPU]
        chosen = list(cards) if cards is not None else own[: demand.devices]
        assert len(chosen) == demand.devices, f"{node} has not enough free cards"
        return tuple(CardShare(index=c, milli=milli, memory_mib=mib) for c in chosen)

    def _hold(self, node: str, pod: PodView, project: str) -> None:
        held = self.nodes[node]
        for card in pod.cards:
            held.free[card.index] -= card.milli
        held.facts.free_cpu_milli -= pod.demand.cpu_milli
        held.facts.free_pods -= 1
        free = dict(held.facts.free_counted)
        for name, n in pod.demand.counted:
            free[name] = free.get(name, 0) - n
        held.facts.free_counted = free
        if pod.cards:
            held.rows.append(
                Row(
                    uid=pod.uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    project=project,
                    cards=list(pod.cards),
                    state=pod.state,  # type: ignore[arg-type]
                )
            )


def allocated(cluster: Cluster) -> Plan:
    """What is placed without evicting a pod."""
    return decide(cluster.snapshot(), Settings(stages=("allocate",)))


def statuses(plan: Plan) -> dict[str, str]:
    """The plan's decision by pod name: reserved, nominated or evicted."""
    found = {
        placed.pod.name: admission.state
        for admission in plan.admissions
        for placed in admission.placements
    }
    return found | {eviction.pod.name: "evicted" for eviction in plan.evictions}


def counts(plan: Plan) -> dict[tuple[str, str], int]:
    """Number of pods by job and status: {("a-job", "reserved"): 4}."""
    found: dict[tuple[str, str], int] = {}
    for name, status in statuses(plan).items():
        key = name.rsplit("-", 1)[0], status
        found[key] = found.get(key, 0) + 1
    return found


def fair_shares(plan: Plan, pool: str = "default") -> dict[str, int]:
    """Fair share of every project in the pool, in milli-GPU."""
    return {
        name: share.fair_share[GPU]
        for (name, of_pool), share in plan.shares.items()
        if of_pool == pool and not name.startswith(department_queue(""))
    }

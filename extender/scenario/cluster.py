"""The constant part of a scenario: its nodes, node pools, queues and topologies as views."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from extender.api.kinds import Device, GpuNode, GpuNodeStatus
from extender.api.names import DEFAULT_POOL, LABEL_GPU_MODEL
from extender.api.objects import ObjectMeta, Taint
from extender.scenario import amounts
from extender.scenario.errors import ScenarioError
from extender.scenario.model.case import Case
from extender.scenario.model.fleet import Node
from extender.scenario.model.queues import USUAL_PRIORITY, Queue
from extender.scenario.model.values import Amount
from extender.scenario.weights import Weights, figures_of, month_of_queue, quota_of
from extender.state import model as state
from extender.state.nodes import NodeFacts, NodeTable, offers_of

HOSTNAME = "kubernetes.io/hostname"
_PPM = 1_000_000


@dataclass(slots=True)
class Cluster:
    """The constant half of a scenario. `memory_unit` is the bytes per unit of memory.

    `free` is a table without running pods; copy it before changing it.
    """

    case: Case
    memory_unit: int = 1
    queues: dict[str, Queue] = field(default_factory=dict)
    queue_views: dict[str, state.QueueView] = field(default_factory=dict)
    pools: dict[str, state.PoolView] = field(default_factory=dict)
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    free: NodeTable = field(default_factory=NodeTable)

    @classmethod
    def of(cls, case: Case) -> "Cluster":
        """The case's cluster; raises ScenarioError if it contradicts itself."""
        cluster = cls(case, memory_unit=amounts.memory_unit(case), pools=_pools(case))
        for topology in case.topologies:
            labels = tuple(level.label for level in topology.levels)
            cluster.topologies[topology.name] = labels
        for queue in case.queues:
            if queue.name in cluster.queues:
                raise ScenarioError(f"{case.id}: two queues are named {queue.name}")
            cluster.queues[queue.name] = queue
        weights = Weights.of(case, cluster.memory)
        for age, queue in enumerate(case.queues):
            cluster.queue_views[queue.name] = _queue_view(cluster, queue, age, weights)
        cluster.free = cluster.make_table()
        return cluster

    def make_table(self, *, is_reversed: bool = False) -> NodeTable:
        """A table without running pods, its rows in the order of the file or reversed."""
        table = NodeTable()
        nodes = self.case.nodes
        for node in reversed(nodes) if is_reversed else nodes:
            if table.ix_of(node.name) is not None:
                raise ScenarioError(f"{self.case.id}: two nodes are named {node.name}")
            table.set_node(self._facts(node))
            table.set_cards(_gpu_node(node))
        return table

    def memory(self, value: Amount, *, is_asked: bool = False) -> int:
        """Units of memory: requests are rounded up, capacity down."""
        found = amounts.quantity(value)
        return -(-found // self.memory_unit) if is_asked else found // self.memory_unit

    def lineage(self, queue: str) -> Iterator[Queue]:
        """The queue and its known ancestors; ends before a cycle closes."""
        seen = set()
        while queue in self.queues and queue not in seen:
            seen.add(queue)
            yield self.queues[queue]
            queue = self.queues[queue].parent or ""

    def pool_of_node(self, node: str) -> str:
        """The node's pool; empty if it is in none, or if there is no such node."""
        ix = self.free.ix_of(node)
        return "" if ix is None else self.free.pool[ix]

    def pools_of(self, own: list[str], queue: str) -> tuple[str, ...]:
        """Node pools in order: the workload's list, else its nearest queue's, else all."""
        lists = [own, *(each.node_pools for each in self.lineage(queue))]
        return tuple(next((names for names in lists if names), self.pools))

    def _facts(self, node: Node) -> NodeFacts:
        cpu, memory = amounts.cpu(node.cpu), self.memory(node.memory)
        labels = {HOSTNAME: node.name, **_model_label(node), **node.labels}
        return NodeFacts(
            name=node.name,
            pool=_pool_of(self.case, labels),
            labels=labels,
            taints=tuple(Taint(key=t.key, effect=t.effect, value=t.value) for t in node.taints),
            is_ready=not node.unschedulable,
            free_cpu_milli=cpu,
            free_memory_mib=memory,
            free_pods=node.max_pods,
            cpu_milli=cpu,
            memory_mib=memory,
            counted=node.mig.instances,
            free_counted=node.mig.instances,
            offers=offers_of(node.offers),
        )


def n_cards(node: Node) -> int:
    """Cards that can be requested whole or in fractions: none if cut into MIG instances."""
    return 0 if node.mig.strategy == "mixed" else amounts.cards(node.gpus)


def _model_label(node: Node) -> dict[str, str]:
    return {} if node.gpu_model is UNSET else {LABEL_GPU_MODEL: node.gpu_model}


def _gpu_node(node: Node) -> GpuNode:
    devices = [
        Device(index=at, memory_mib=node.gpu_memory_mib, model=node.model)
        for at in range(n_cards(node))
    ]
    return GpuNode(metadata=ObjectMeta(name=node.name), status=GpuNodeStatus(devices=devices))


def _pool_of(case: Case, labels: Mapping[str, str]) -> str:
    """The first node pool that selects the node; empty if none does."""
    if not case.node_pools:
        return DEFAULT_POOL
    for pool in case.node_pools:
        if all(labels.get(key) == value for key, value in pool.match.items()):
            return pool.name
    return ""


def _pools(case: Case) -> dict[str, state.PoolView]:
    settings = case.settings
    usual = state.PoolView(
        name=DEFAULT_POOL,
        gpu_placement=settings.placement.gpu,
        cpu_placement=settings.placement.cpu,
        policy=settings.policy,
        has_preemption=settings.preemption,
        job_order=settings.job_order,
        reclaim_band_percent=settings.reclaim_band,
        checkpoint_s=int(settings.checkpoint),
        consolidate_after_s=int(settings.consolidate_after),
    )
    if not case.node_pools:
        return {usual.name: usual}
    found = {}
    for pool in case.node_pools:
        placement = settings.placement if pool.placement is UNSET else pool.placement
        after = pool.consolidate_after
        found[pool.name] = state.PoolView(
            name=pool.name,
            gpu_placement=placement.gpu,
            cpu_placement=placement.cpu,
            policy=settings.policy if pool.policy is UNSET else pool.policy,
            has_preemption=settings.preemption if pool.preemption is UNSET else pool.preemption,
            job_order=settings.job_order,
            reclaim_band_percent=settings.reclaim_band,
            checkpoint_s=int(settings.checkpoint),
            consolidate_after_s=int(settings.consolidate_after if after is UNSET else after),
        )
    return found


def _queue_view(cluster: Cluster, queue: Queue, age: int, weights: Weights) -> state.QueueView:
    case = cluster.case
    if queue.parent is not None and queue.parent not in cluster.queues:
        why = f"there is no queue {queue.parent or 'of an empty name'}"
        raise ScenarioError(f"{case.id}: queue {queue.name}: parent: {why}")
    for name in (*queue.pools, *queue.node_pools):
        if name not in cluster.pools:
            why = f"there is no node pool {name}; there are: {', '.join(cluster.pools)}"
            raise ScenarioError(f"{case.id}: queue {queue.name}: {why}")
    reading = _Reading(cluster, queue, weights)
    *_, top = cluster.lineage(queue.name)
    if top.parent is not None:
        raise ScenarioError(f"{case.id}: queue {queue.name} is its own ancestor")
    return state.QueueView(
        name=queue.name,
        parent=queue.parent or "",
        created_at=age,
        pools={pool: reading.quota_in(pool) for pool in cluster.pools},
        reclaim_min_runtime_s=_seconds(queue.reclaim_min_runtime),
        preempt_min_runtime_s=_seconds(queue.preempt_min_runtime),
    )


def _seconds(stated: float | UnsetType) -> int | None:
    return None if stated is UNSET else int(stated)


@dataclass(slots=True)
class _Reading:
    """Converts one queue's figures to integers."""

    cluster: Cluster
    queue: Queue
    weights: Weights

    def quota_in(self, pool: str) -> state.PoolQuota:
        """The queue's figures in one node pool: those given for the pool, else its own."""
        gpu, cpu, memory = (self._figures(at, pool) for at in range(3))
        rank = USUAL_PRIORITY - self.queue.priority
        return state.PoolQuota(
            gpu=gpu,
            cpu=cpu,
            memory=memory,
            rank=rank + self.weights.is_behind(self.queue, pool),
        )

    def _figures(self, at: int, pool: str) -> state.Figures:
        figures = figures_of(self.queue, at, pool)
        quota = self._bound(at, quota_of(figures, at))
        used = (self.queue.usage.gpu, self.queue.usage.cpu, self.queue.usage.memory)[at]
        return state.Figures(
            quota=quota,
            limit=self._bound(at, None if figures.limit is UNSET else figures.limit),
            weight=self.weights.weight(self.queue, at, figures, quota),
            usage_ppm=round(amounts.fraction(used) * _PPM),
            month=self._month(pool) if at == state.GPU else None,
        )

    def _month(self, pool: str) -> state.MonthHours | None:
        month = month_of_queue(self.queue, pool)
        if month is not None and self.queue.name in self.weights.parents:
            name = f"{self.cluster.case.id}: {self.queue.name}"
            raise ScenarioError(f"{name}: gpuHoursPerMonth: only queues without others below it")
        return month

    def _bound(self, at: int, value: Amount | None) -> int:
        if value is None:
            return state.UNLIMITED
        read = (amounts.gpus, amounts.cpu, self.cluster.memory)[at]
        return min(read(value), state.UNLIMITED)

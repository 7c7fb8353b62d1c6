"""The current cluster as a scenario file, for `ballast scenario show` and `simulate`.

Facts that a file cannot express are left out, and counted in `about`: workloads behind a hold or
another program's gate, invalid workloads, affinities with several terms, and the leader's in-memory
state.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET, UnsetType

from extender.api.months import PER_GPU_HOUR, format_gpu_hours
from extender.api.names import LABEL_GPU_MODEL, LABEL_NODE_POOL, NEVER_PREEMPTS
from extender.api.units import MILLI_PER_GPU, format_gpus
from extender.scenario.model.case import Case, Settings
from extender.scenario.model.fleet import (
    USUAL_MODEL,
    Level,
    Mig,
    Node,
    NodeTaint,
    Placement,
    Pool,
    Topology,
)
from extender.scenario.model.jobs import (
    Budget,
    Group,
    Job,
    Nearness,
    Requirement,
    Stale,
    Task,
    Toleration,
)
from extender.scenario.model.queues import USUAL_PRIORITY, GpuFigures, Queue, QueuePool, Usage
from extender.scenario.model.queues import Figures as FileFigures
from extender.scenario.plain import without_defaults
from extender.state.model import Constraints, Figures, GroupView, PodView, QueueView, WorkloadView
from extender.view.file_names import Names
from extender.view.picture import Picture, is_limited, waits

#: The job that occupies cards that are neither free nor held by a workload of the file.
_TAKEN: Final = "not-available"


def as_file(picture: Picture, names: Names) -> dict[str, Any]:
    """The scenario as plain values for JSON or YAML."""
    return _Writer(picture, names).write()


@dataclass(slots=True)
class _Writer:
    """Converts one picture; `left_out` counts facts that a file cannot express, `held_on` has the
    pods of each node."""

    picture: Picture
    names: Names
    left_out: Counter[str] = field(default_factory=Counter)
    taken: dict[str, str] = field(default_factory=dict)
    held_on: defaultdict[str, list[PodView]] = field(default_factory=lambda: defaultdict(list))

    def write(self) -> dict[str, Any]:
        snapshot = self.picture.snapshot
        workloads = sorted(
            snapshot.workloads.values(), key=lambda each: (each.created_at, each.key)
        )
        self._name_jobs(workloads)
        for pod in (pod for each in workloads for pod in each.pods if pod.node):
            self.held_on[pod.node].append(pod)
        jobs = [job for each in workloads if (job := self._job(each)) is not None]
        nodes = [self._node(name, ix) for name, ix in sorted(snapshot.nodes.cards.ix.items())]
        if seized := list(self._seized()):
            jobs.append(
                Job(name=_TAKEN, namespace=_TAKEN, priority=1000, preemptible=False,
                         tasks=seized)
            )  # fmt: skip
        case = Case(
            scenario="v1",
            id="snapshot",
            about=self._about(),
            settings=self._settings(),
            topologies=[
                Topology(name=name, levels=[Level(label=label) for label in labels])
                for name, labels in sorted(snapshot.topologies.items())
            ],
            node_pools=self._pools(),
            nodes=nodes,
            queues=[self._queue(view) for view in self._queues()],
            jobs=jobs,
            budgets=list(self._budgets(workloads)),
        )
        document: dict[str, Any] = without_defaults(case)
        return document

    # -- the cluster -------------------------------------------------------------------------

    def _settings(self) -> Settings:
        """Those of the pool with the most nodes: a file has one reclaim band and one order."""
        pools, n_in = self.picture.snapshot.pools, Counter(self.picture.snapshot.nodes.pool)
        usual = max(pools.values(), key=lambda pool: (n_in[pool.name], pool.name), default=None)
        if usual is None:
            return Settings()
        same = [
            (pool.reclaim_band_percent, pool.checkpoint_s, pool.job_order)
            for pool in pools.values()
        ]
        if len(set(same)) > 1:
            self.left_out["settings of node pools other than " + usual.name] += 1
        weight, cycle = usual.usage_weight_milli, self.picture.settings
        return Settings(
            stages=list(cycle.stages),
            max_consolidation_victims=cycle.max_moves,
            reclaim_moves_victims=cycle.moves_reclaimed,
            reclaim_band=usual.reclaim_band_percent,
            checkpoint=usual.checkpoint_s,
            job_order=usual.job_order,
            usage_weight=(cycle.usage_weight_milli if weight is None else weight) / 1000,
        )

    def _pools(self) -> list[Pool]:
        return [
            Pool(
                name=pool.name,
                match={LABEL_NODE_POOL: pool.name},
                policy=pool.policy,
                preemption=pool.has_preemption,
                placement=Placement(gpu=pool.gpu_placement),
                consolidate_after=pool.consolidate_after_s,
            )
            for _, pool in sorted(self.picture.snapshot.pools.items())
        ]

    def _node(self, name: str, ix: int) -> Node:
        table = self.picture.snapshot.nodes
        cards, held = table.cards, self.held_on[name]
        labels = {key: self.names.value(key, value) for key, value in table.labels[ix].items()}
        # A stated model is a label, too.
        model, has_label = cards.model[ix] or UNSET, LABEL_GPU_MODEL in labels
        counted = Counter(table.free_counted[ix] or {})
        for pod in held:
            counted.update(dict(pod.demand.counted))
        cpu_milli = table.free_cpu_milli[ix] + sum(pod.demand.cpu_milli for pod in held)
        memory_mib = table.free_memory_mib[ix] + sum(pod.demand.memory_mib for pod in held)
        return Node(
            name=self.names.node(name),
            labels={**labels, LABEL_NODE_POOL: table.pool[ix]},
            taints=[
                NodeTaint(key=t.key, value=t.value, effect=t.effect)  # type: ignore[arg-type]
                for t in table.taints[ix]
            ],
            gpus=cards.n_cards[ix],
            gpu_memory_mib=cards.card_mib[ix],
            gpu_model=model if has_label or model != USUAL_MODEL else UNSET,
            cpu=f"{max(0, cpu_milli)}m",
            memory=f"{max(0, memory_mib)}Mi",
            max_pods=max(0, table.free_pods[ix] + len(held)),
            mig=Mig(instances={key: n for key, n in sorted(counted.items()) if n > 0}),
            offers=tuple(sorted(table.offers[ix], reverse=True)),
            unschedulable=not table.is_ready[ix],
        )

    def _seized(self) -> Iterator[Task]:
        """Parts of cards that are neither free nor held by a workload: on unhealthy cards, and of
        pods that Ballast did not place."""
        cards = self.picture.snapshot.nodes.cards
        for name, ix in sorted(cards.ix.items()):
            held: Counter[int] = Counter()
            for pod in self.held_on[name]:
                held.update({card.index: card.milli for card in pod.cards})
            for card in range(cards.n_cards[ix]):
                free = max(0, cards.card_free[ix * cards.stride + card])
                milli = MILLI_PER_GPU - free - held[card]
                if milli > 0:
                    yield Task(
                        name=f"{self.names.node(name)}-{card}",
                        state="running",
                        node=self.names.node(name),
                        cards=[str(card)],
                        gpu=format_gpus(milli),
                        cpu="0",
                        memory="0",
                    )

    # -- queues ------------------------------------------------------------------------------

    def _queues(self) -> list[QueueView]:
        """Departments before their projects, the oldest first: in a file, the order is the age."""
        views = [
            view for view in self.picture.snapshot.queues.values() if "/user/" not in view.name
        ]
        return sorted(views, key=lambda view: (bool(view.parent), view.created_at, view.name))

    def _queue(self, view: QueueView) -> Queue:
        pools = {
            pool: QueuePool(
                gpu=_gpu_figures(figures.gpu, self.picture.snapshot.now_s),
                cpu=_figures(figures.cpu, lambda milli: f"{milli}m"),
                memory=_figures(figures.memory, lambda mib: f"{mib}Mi"),
            )
            for pool, figures in sorted(view.pools.items())
        }
        ranks = {figures.rank for figures in view.pools.values()} or {0}
        if len(ranks) > 1:
            self.left_out["ranks of a queue that differ by node pool"] += 1
        used = [figures.gpu.usage_ppm for figures in view.pools.values()]
        return Queue(
            name=self.names.queue(view.name),
            parent=self._parent(view),
            priority=USUAL_PRIORITY - min(ranks),
            pools=pools,
            usage=Usage(gpu=max(used, default=0) / 1_000_000),
            reclaim_min_runtime=_stated(view.reclaim_min_runtime_s),
            preempt_min_runtime=_stated(view.preempt_min_runtime_s),
        )

    def _parent(self, view: QueueView) -> str | None:
        """The queue's parent, if it exists."""
        is_there = view.parent in self.picture.snapshot.queues
        return self.names.queue(view.parent) if is_there else None

    # -- work --------------------------------------------------------------------------------

    def _name_jobs(self, workloads: Iterable[WorkloadView]) -> None:
        """Job names are unique in a file: a name that occurs in several namespaces gets its
        namespace as a prefix."""
        n_of = Counter(self.names.job(each.name) for each in workloads)
        for each in workloads:
            name = self.names.job(each.name)
            space = self.names.namespace(each.namespace)
            self.taken[each.key] = name if n_of[name] == 1 else f"{space}.{name}"

    def _job(self, workload: WorkloadView) -> Job | None:
        if workload.problem is not None:
            self.left_out["workloads that cannot start as they are"] += 1
            if not any(pod.node for pod in workload.pods):
                return None
        now_s = self.picture.snapshot.now_s
        tasks = [task for pod in workload.pods if (task := self._task(workload, pod)) is not None]
        if not tasks:
            return None
        started = [pod.started_at for pod in workload.pods if pod.node and pod.started_at]
        saves = [pod.checkpoint_s for pod in workload.pods if pod.checkpoint_s is not None]
        return Job(
            name=self.taken[workload.key],
            tasks=tasks,
            queue=self.names.queue(workload.project),
            namespace=self.names.namespace(workload.namespace),
            priority=workload.priority,
            preemptible=workload.is_preemptible,
            kind=workload.kind,  # type: ignore[arg-type]
            node_pools=list(workload.pools),
            user=self.names.user(workload.user),
            max_concurrent_pods=workload.max_concurrent_pods,
            expected_run=workload.expected_run_s,
            checkpoint=saves[0] if saves else None,
            weight=workload.weight,
            replica_of=self.names.job(workload.replica.owner) if workload.replica else "",
            floor=workload.replica.floor if workload.replica else 0,
            age=max(0, now_s - workload.created_at),
            running_for=max(0, now_s - min(started)) if started else 0,
            preemption_delay=workload.preemption_delay_s,
            preemption_policy=NEVER_PREEMPTS if workload.never_preempts else "PreemptLowerPriority",
            stale=self._stale(workload),
            group=_group(workload.tree, workload.min_member),
        )

    def _stale(self, workload: WorkloadView) -> Stale | None:
        if workload.stale_since is None:
            return None
        since = max(0, self.picture.snapshot.now_s - workload.stale_since)
        return Stale(for_=since, grace=workload.stale_grace_s)

    def _task(self, workload: WorkloadView, pod: PodView) -> Task | None:
        """The pod as a task; None if a file cannot express its state."""
        demand, is_waiting = pod.demand, waits(pod) or not pod.node
        if is_waiting and pod.is_terminating:
            return None
        if is_waiting and pod.other_gates:
            self.left_out["pods that a hold or a gate of others keeps from starting"] += 1
            return None
        if not is_waiting and demand.devices and not pod.cards:
            self.left_out["running pods whose cards are not known"] += 1
            return None
        asked: dict[str, Any] = {"gpu": format_gpus(demand.milli * demand.devices)}
        if demand.gpu_memory_mib:
            asked = {"gpu_memory": demand.gpu_memory_mib, "devices": demand.devices}
        elif demand.milli != MILLI_PER_GPU and demand.devices > 1:
            asked = {"gpu": format_gpus(demand.milli), "devices": demand.devices}
        state = "pending"
        if pod.node:
            state = "evicted" if pod.is_terminating else "running"
            state = "nominated" if pod.state == "nominated" else state
        return Task(
            # In a picture from a file, pods are named job/task.
            name=self.names.pod(pod.name.rpartition("/")[2]),
            state=state,  # type: ignore[arg-type]
            node=self.names.node(pod.node) if pod.node else None,
            cards=[str(card.index) for card in pod.cards],
            group=pod.group if workload.tree and workload.tree.children else "",
            order=pod.order,
            cpu=f"{demand.cpu_milli}m",
            memory=f"{demand.memory_mib}Mi",
            resources=dict(demand.counted),
            **asked,
            **self._constraints(pod.constraints),
        )

    def _constraints(self, found: Constraints) -> dict[str, Any]:
        terms = found.affinity.node_selector_terms if found.affinity else []
        rules: list[Requirement] = []
        if len(terms) == 1 and not terms[0].match_fields:
            rules = [
                Requirement(
                    key=rule.key,
                    operator=rule.operator,  # type: ignore[arg-type]
                    values=[self.names.value(rule.key, value) for value in rule.values or ()],
                )
                for rule in terms[0].match_expressions or ()
            ]
        elif terms:
            self.left_out["node affinities with several terms or with fields"] += 1
        said = (found.gpu_models, found.pod_affinity, found.pod_anti_affinity, found.volumes,
                found.only_nodes, found.barred)  # fmt: skip
        if any(said):
            self.left_out["GPU models, pod affinity, volumes and refused nodes of pods"] += 1
        return {
            "delivery": found.delivery or "resource",
            "node_selector": {
                key: self.names.value(key, value) for key, value in found.node_selector
            },
            "node_affinity": rules,
            "tolerations": [
                Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect)  # type: ignore[arg-type]
                for t in found.tolerations
            ],
        }

    def _budgets(self, workloads: Iterable[WorkloadView]) -> Iterator[Budget]:
        """Each budget protects as many pods as it would not allow to be disrupted now."""
        jobs: dict[str, list[str]] = {}
        n_up: Counter[str] = Counter()
        for workload in workloads:
            for name in {name for pod in workload.pods for name in pod.budgets}:
                jobs.setdefault(name, []).append(self.taken[workload.key])
                n_up[name] += sum(
                    pod.state == "bound" and not pod.is_terminating for pod in workload.pods
                )
        for key, covered in sorted(jobs.items()):
            space, _, name = key.partition("/")
            allowed = self.picture.snapshot.budgets.get(key, 0)
            yield Budget(
                name=self.names.job(name),
                namespace=self.names.namespace(space),
                jobs=covered,
                min_available=max(0, n_up[key] - allowed),
            )

    def _about(self) -> str:
        listed = [f"{n} x {what}" for what, n in sorted(self.left_out.items())]
        return f"Not in this file: {'; '.join(listed)}." if listed else ""


def _figures(given: Figures, say: Any) -> FileFigures:
    return FileFigures(
        quota=say(given.quota) if is_limited(given.quota) else None,
        limit=say(given.limit) if is_limited(given.limit) else None,
        weight=given.weight,
    )


def _gpu_figures(given: Figures, now_s: int) -> GpuFigures:
    """With the monthly budget, and the used hours if they are known."""
    usual, month = _figures(given, format_gpus), given.month
    return GpuFigures(
        quota=usual.quota,
        limit=usual.limit,
        weight=usual.weight,
        gpu_hours_per_month=month.budget // PER_GPU_HOUR if month else None,
        gpu_hours_used=format_gpu_hours(month.used) if month and month.is_known_at(now_s) else 0,
    )


def _stated(seconds: int | None) -> int | UnsetType:
    return UNSET if seconds is None else seconds


def _group(tree: GroupView | None, min_member: int) -> Group:
    if tree is None:
        return Group(min=min_member)
    near = tree.topology
    return Group(
        name=tree.name,
        min=tree.min_member,
        min_groups=tree.min_groups,
        topology=Nearness(name=near.topology, required=near.required, preferred=near.preferred)
        if near
        else None,
        children=[_group(child, child.min_member) for child in tree.children],
    )

"""A scenario as objects of a real cluster: what the file says is there, written straight into etcd.

Cases have a node pool, nodes, namespaces and queues of their own, so that one controller decides
many of them side by side. Pods are made by no controller, so what is evicted does not come back,
and nothing is moved.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from extender.api import names
from extender.api.ledger import Device, GpuNodeSpec, GpuNodeStatus, Row
from extender.scenario.amounts import cards
from extender.scenario.model.case import Case
from extender.scenario.model.fleet import Node
from extender.scenario.model.jobs import Job
from extender.scenario.model.queues import Figures, GpuFigures, Queue
from extender.scenario.run import run_cycle
from extender.scenario.world import NOW_S, RunJob, RunTask, World
from tests.support.controlplane.store import Store

Manifest = dict[str, Any]
STAGES: Final = ("allocate", "reclaim", "preempt")
_WHOLE: Final = "whole"
#: What a queue has as `priority` that does not say.
_USUAL_RANK: Final = 100
#: Rounds after which a case of a few jobs is at rest.
_MOST_ROUNDS: Final = 20


@dataclass(slots=True, frozen=True)
class Rest:
    """What is left when nothing changes any more, by the names of tasks."""

    running: frozenset[str]
    evicted: frozenset[str]


class MovesError(Exception):
    """A case in which a pod moves: those of a cluster's cases do not."""


def is_plain(case: Case) -> bool:
    """Whether a cluster with one node pool, two levels of queues and bare pods can say it."""
    settings, usual = case.settings, Case(scenario="v1", id="x", nodes=[]).settings
    same = ("policy", "preemption", "placement", "job_order", "over_quota_weights")
    return (
        all(getattr(settings, name) == getattr(usual, name) for name in same)
        and {"allocate", "reclaim", "preempt"} <= set(settings.stages)
        and not (case.topologies or case.node_pools or case.budgets or case.steps)
        and not case.is_out_of_format
        and all(map(_is_plain_node, case.nodes))
        and _has_two_levels(case)
        and all(_is_plain_queue(case, queue) for queue in case.queues)
        and all(_is_plain_job(case, job) for job in case.jobs)
    )


def as_both_see_it(case: Case) -> Case:
    """The case under one department where it has none; what is evicted is gone, nothing moves."""
    queues = list(case.queues)
    if not any(queue.parent for queue in queues):
        quotas = [queue.gpu.quota for queue in queues]
        total = sum(float(quota) for quota in quotas if isinstance(quota, int | float | str))
        whole = Queue(name=_WHOLE, gpu=GpuFigures(quota=total))
        queues = [whole, *(replace(queue, parent=_WHOLE) for queue in queues)]
    return replace(
        case,
        queues=queues,
        settings=replace(case.settings, stages=list(STAGES), reclaim_moves_victims=False),
        jobs=[replace(job, deleted=True) for job in case.jobs],
    )


def rest_of_file(case: Case) -> Rest:
    """Where cycle after cycle leads in the file; raises MovesError where it moves a pod."""
    world = World.of(case)
    began = {task.id for task in world.tasks.values() if task.place.status == "running"}
    for task in world.tasks.values():
        task.view = replace(task.view, is_controlled=False)
    for cycle in range(1, _MOST_ROUNDS):
        outcome = run_cycle(world, cycle, lambda: 0)
        if outcome.plan.moves:
            raise MovesError(case.id)
        if not any(True for _ in outcome.changed()):
            break
        world.settle(outcome.after)
    running = {task.id for task in world.tasks.values() if task.place.status == "running"}
    return Rest(frozenset(running), frozenset(began - world.tasks.keys()))


@dataclass(slots=True)
class Stored:
    """One case on the cluster; `prefix` begins the names of all it has."""

    case: Case
    prefix: str
    world: World

    @classmethod
    def of(cls, case: Case, prefix: str) -> "Stored":
        """The case, seen as both see it."""
        return cls(case, prefix, World.of(case))

    def write(self, store: Store, now_s: int) -> None:
        """Write all of it; its times are relative to `now_s`, unix seconds."""
        case = self.case
        label = {"pool": self.prefix}
        settings = case.settings
        pool = {
            "nodeSelector": label,
            "reclaimBandPercent": settings.reclaim_band,
            "checkpointSeconds": settings.checkpoint,
        }
        store.put(f"{names.GROUP}/gpunodepools", [_ours("GpuNodePool", self.prefix, pool)])
        store.put("minions", [self._node(node) for node in case.nodes])
        store.put(f"{names.GROUP}/gpunodes", [self._gpu_node(node) for node in case.nodes])
        store.put("namespaces", [_namespace(self._name(queue.name)) for queue in case.queues])
        parents = {queue.parent for queue in case.queues}
        for age, queue in enumerate(case.queues):
            made = {"creationTimestamp": _time(now_s - 100_000 + age)}
            folder, kind = (
                ("gpudepartments", "GpuDepartment")
                if queue.name in parents
                else ("gpuprojects", "GpuProject")
            )
            body = _ours(kind, self._name(queue.name), self._queue_spec(queue))
            body["metadata"] |= made
            store.put(f"{names.GROUP}/{folder}", [body])
        created = self.world.created_at()
        for job in self.world.jobs.values():
            made_s = now_s + created[job.spec.name] - NOW_S
            if len(job.tasks) > 1:
                store.put(f"{names.GROUP}/gpupodgroups", [self._group(job, made_s)])
            pods = [self._pod(job, task, made_s, now_s) for task in job.tasks]
            store.put("pods", pods)

    def rest(self, pods: list[Manifest]) -> Rest:
        """What the cluster has left of it; `pods` are those of all namespaces."""
        found = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }
        running, gone = set(), set()
        for job in self.world.jobs.values():
            for task in job.tasks:
                pod = found.get((self._name(job.spec.queue), _pod_name(task)))
                if pod is None:
                    gone.add(task.id)
                elif pod["spec"].get("nodeName"):
                    running.add(task.id)
        return Rest(frozenset(running), frozenset(gone))

    def _name(self, of: str) -> str:
        return f"{self.prefix}-{of}".lower().replace("_", "-")

    def _node(self, node: Node) -> Manifest:
        labels = {
            **node.labels,
            "kubernetes.io/hostname": self._name(node.name),
            "pool": self.prefix,
            "nvidia.com/gpu.count": str(cards(node.gpus)),
            "nvidia.com/gpu.memory": str(node.gpu_memory_mib),
            "nvidia.com/gpu.product": node.model,
        }
        capacity = {
            "cpu": str(node.cpu),
            "memory": str(node.memory),
            "pods": str(node.max_pods),
            names.GPU_MILLI: str(1000 * cards(node.gpus)),
        }
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": _time(0),
            "lastTransitionTime": _time(0),
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self._name(node.name),
                "labels": labels,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [ready],
                "phase": "Running",
            },
        }

    def _gpu_node(self, node: Node) -> Manifest:
        rows = [
            Row(
                uid=_uid(self.prefix, task),
                namespace=self._name(job.spec.queue),
                name=_pod_name(task),
                project=self._name(job.spec.queue),
                group=_group_name(job),
                cards=list(task.place.cards),
                non_preemptible=not job.spec.is_preemptible,
                state="bound",
                epoch=1,
            )
            for job in self.world.jobs.values()
            for task in job.tasks
            if task.place.node == node.name and task.place.cards
        ]
        devices = [
            Device(index=at, memory_mib=node.gpu_memory_mib, model=node.model)
            for at in range(cards(node.gpus))
        ]
        status = GpuNodeStatus(devices=devices, cards=len(devices), healthy_cards=len(devices))
        body = _ours("GpuNode", self._name(node.name), msgspec.to_builtins(GpuNodeSpec.of(rows)))
        return body | {"status": msgspec.to_builtins(status)}

    def _queue_spec(self, queue: Queue) -> Manifest:
        own = queue.gpu
        gpu: Manifest = {"quota": 0 if queue.gpu.quota is msgspec.UNSET else own.quota}
        if own.limit not in (None, msgspec.UNSET):
            gpu["limit"] = own.limit
        if own.weight is not msgspec.UNSET:
            gpu["overQuotaWeight"] = own.weight
        pools = [{"name": self.prefix, "gpu": gpu, "rank": 100 - queue.priority}]
        if not queue.parent:
            return {"nodePools": pools}
        return {
            "department": self._name(queue.parent),
            "namespaces": [self._name(queue.name)],
            "nodePools": pools,
            "minRuntime": {
                "reclaimSeconds": _or_zero(queue.reclaim_min_runtime),
                "preemptSeconds": _or_zero(queue.preempt_min_runtime),
            },
        }

    def _group(self, job: RunJob, made_s: int) -> Manifest:
        spec: Manifest = {"minMember": job.tree.min_member}
        if job.spec.max_concurrent_pods is not None:
            spec["maxConcurrentPods"] = job.spec.max_concurrent_pods
        body = _ours("GpuPodGroup", _group_name(job), spec)
        body["metadata"] |= {
            "namespace": self._name(job.spec.queue),
            "creationTimestamp": _time(made_s),
        }
        return body

    def _pod(self, job: RunJob, task: RunTask, made_s: int, now_s: int) -> Manifest:
        spec, demand = job.spec, task.demand
        word = names.PREEMPTIBLE if spec.is_preemptible else names.NON_PREEMPTIBLE
        labels = {names.LABEL_PREEMPTIBILITY: word, names.LABEL_WORKLOAD_KIND: spec.kind}
        if len(job.tasks) > 1:
            labels[names.LABEL_POD_GROUP] = _group_name(job)
        if spec.user:
            labels[names.LABEL_USER] = spec.user
        notes = {names.ANNOTATION_CHECKPOINT: str(int(spec.checkpoint))} if spec.checkpoint else {}
        if spec.replica:
            labels[names.LABEL_REPLICA_OF] = spec.replica_of
            notes[names.ANNOTATION_FLOOR] = str(spec.floor)
        asked = {"cpu": f"{demand.cpu_milli}m", "memory": str(_memory(self.world, task))}
        if demand.devices:
            asked[names.GPU_MILLI] = str(demand.devices * demand.milli)
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": _pod_name(task),
                "namespace": self._name(spec.queue),
                "uid": _uid(self.prefix, task),
                "creationTimestamp": _time(made_s),
                "labels": labels,
                "annotations": notes,
            },
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "priority": spec.priority,
                "nodeSelector": dict(task.view.constraints.node_selector),
                "containers": [
                    {
                        "name": "main",
                        "image": "example",
                        "resources": {"requests": asked, "limits": asked},
                    }
                ],
            },
            "status": {"phase": "Pending"},
        }
        if task.place.status == "running":
            started = _time(now_s - int(spec.running_for))
            body["spec"]["nodeName"] = self._name(task.place.node)
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": started}
            body["status"] = {"phase": "Running", "startTime": started, "conditions": [ready]}
        else:
            body["spec"]["schedulingGates"] = [{"name": names.GATE}]
        return body


def _is_plain_node(node: Node) -> bool:
    plain = Node(name=node.name, gpus=node.gpus, labels=node.labels)
    return node == plain


def _has_two_levels(case: Case) -> bool:
    parents = {queue.parent for queue in case.queues if queue.parent}
    if not parents:
        return bool(case.queues)
    return all((queue.parent is None) == (queue.name in parents) for queue in case.queues)


def _is_plain_queue(case: Case, queue: Queue) -> bool:
    is_department = any(each.parent == queue.name for each in case.queues)
    is_department_weighed = is_department and queue.gpu.weight is not msgspec.UNSET
    figures = queue.gpu.quota is not None and not isinstance(queue.gpu.weight, float | str)
    is_plain = not (queue.node_pools or queue.pools or queue.node_types)
    is_plain = is_plain and queue.gpu.gpu_hours_per_month is None
    # A GpuDepartment states neither.
    is_protected = any(map(_or_zero, (queue.reclaim_min_runtime, queue.preempt_min_runtime)))
    is_plain = is_plain and not (is_department and (is_protected or queue.priority != _USUAL_RANK))
    is_used = any((queue.usage.gpu, queue.usage.cpu, queue.usage.memory))
    others = queue.cpu == Figures() and queue.memory == Figures()
    return figures and is_plain and others and not is_used and not is_department_weighed


def _is_plain_job(case: Case, job: Job) -> bool:
    n = sum(task.n for task in job.tasks)
    least = n if job.group.min is None else job.group.min
    return (
        any(queue.name == job.queue for queue in case.queues)
        and not (job.node_pools or job.stale or job.preemption_delay or job.expected_run)
        and job.preemption_policy == "PreemptLowerPriority"
        and not (job.group.children or job.group.topology or job.group.min_groups)
        and 1 <= least <= n
        and all(_is_plain_task(task) for task in job.tasks)
    )


def _is_plain_task(task: Any) -> bool:
    exotic = (task.gpu_memory, task.mig, task.resources, task.node_affinity, task.pod_affinity)
    return (
        not any(exotic)
        and not (task.pod_anti_affinity or task.tolerations or task.order)
        and task.devices == 1
        and task.gpu not in (0, "0")
        and task.state in ("pending", "running")
    )


def _ours(kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "generation": 1},
        "spec": spec,
    }


def _namespace(name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _pod_name(task: RunTask) -> str:
    return task.id.replace("/", "-").replace("_", "-").lower()


def _group_name(job: RunJob) -> str:
    return job.spec.name.replace("_", "-").lower() if len(job.tasks) > 1 else ""


def _uid(prefix: str, task: RunTask) -> str:
    return f"{prefix}-{_pod_name(task)}"


def _memory(world: World, task: RunTask) -> int:
    return task.demand.memory_mib * world.cluster.memory_unit


def _or_zero(seconds: Any) -> int:
    return 0 if seconds is msgspec.UNSET else int(seconds)


def _time(unix_s: int) -> str:
    made = datetime.datetime.fromtimestamp(unix_s, datetime.UTC)
    return made.strftime("%Y-%m-%dT%H:%M:%SZ")


def chosen(cases: list[Case]) -> Iterator[Case]:
    """The plain ones, as both see them."""
    for case in cases:
        if is_plain(case):
            yield as_both_see_it(case)

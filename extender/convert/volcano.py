"""Volcano: Queue, PodGroup, vcjob, and vGPUs.

A vcjob becomes one Job for each of its tasks, in one GpuPodGroup with a sub-group for each.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

from extender.api.names import LABEL_POD_GROUP, LABEL_PROJECT, LABEL_SUB_GROUP, NVIDIA_GPU
from extender.convert.fields import Converted, Fields, Lost, Manifest, Served, group_of, new_object
from extender.convert.hami import Words, change
from extender.convert.queues import (
    Draft,
    add_namespaces,
    build,
    dns_name,
    namespaces_by,
    quantity_of,
)
from extender.convert.shapes import TEMPLATE, WORKLOAD, shaped
from extender.convert.templates import (
    adopted,
    drop_scheduler,
    has_gpus,
    is_workload,
    join_group,
    label,
    template_of,
)

LIVE: Final = (
    Served("scheduling.volcano.sh", "queues", ("v1beta1",)),
    Served("scheduling.volcano.sh", "podgroups", ("v1beta1",)),
    Served("batch.volcano.sh", "jobs", ("v1alpha1",)),
)
SCHEDULERS: Final = ("volcano",)
_VGPU: Final = Words("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores")
_QUEUE_KEYS: Final = ("volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
#: Annotations of pods that name their PodGroup.
_GROUP_NOTES: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
#: Volcano's own queue, for workloads that name no other.
_ROOT: Final = ("root", "")

_WHY: Final = {
    "spec.reclaimable": "what a project borrows can be taken back from every project",
    "spec.affinity": "a node pool selects nodes by labels",
    "spec.extendClusters": "Ballast schedules one cluster",
    "spec.type": "there is one kind of queue",
    "spec.dequeueStrategy": "jobOrder of the GpuNodePool says whether later work may pass",
    "spec.priority": "queues have no priority of their own; a rank per node pool is near to it",
    "spec.minResources": "the pods of a group say what they ask for",
    "spec.networkTopology": "use topologyConstraint with a GpuTopology",
    "spec.plugins": "a Job has no plugins: names of hosts come from an Indexed Job and a Service",
    "spec.policies": "a Job restarts by its backoffLimit and podFailurePolicy",
    "spec.volumes": "state the volumes in the pod template",
    "spec.runningEstimate": "expectedRunSeconds of the GpuPodGroup",
}


_TASK: Final = {
    "name": str, "replicas": int, "minAvailable": int, "template": TEMPLATE,
}  # fmt: skip
_SHAPES: Final = {
    "Queue": {
        "spec": {
            "parent": str,
            "weight": int,
            "guarantee": {"resource": dict},
            "deserved": dict,
            "capability": dict,
        }
    },
    "PodGroup": {
        "spec": {"minMember": int, "queue": str, "priorityClassName": str, "minTaskMember": dict}
    },
    # Volcano's or Kubernetes' Job.
    "Job": {
        "metadata": WORKLOAD["metadata"],
        "spec": {
            **WORKLOAD["spec"],
            "tasks": [_TASK],
            "minAvailable": int,
            "queue": str,
            "priorityClassName": str,
            "maxRetry": int,
            "ttlSecondsAfterFinished": int,
            "plugins": dict,
        },
    },
}


def convert(objects: Iterable[Manifest]) -> Converted:
    """Convert all objects."""
    done, listed = Converted(), list(shaped(objects, _SHAPES))
    drafts: list[Draft] = []
    used = list(namespaces_by(listed, _QUEUE_KEYS))
    for manifest in listed:
        group, kind = group_of(manifest), manifest.get("kind")
        if group == "scheduling.volcano.sh" and kind == "Queue":
            draft = _queue(manifest, done)
            if draft.name not in _ROOT:
                drafts.append(draft)
        elif group == "scheduling.volcano.sh" and kind == "PodGroup":
            done.objects.append(_pod_group(manifest, done, used))
        elif group == "batch.volcano.sh" and kind == "Job":
            done.objects += _job(manifest, done, used)
        elif is_workload(manifest):
            workload = adopted(manifest, SCHEDULERS)
            change(template_of(workload), _VGPU, Fields(manifest).named, done)
            join_group(template_of(workload), _GROUP_NOTES)
            done.objects.append(workload)
        else:
            done.leave_out(manifest, "Volcano")
    add_namespaces(drafts, used)
    build(drafts, done, has_namespaces=False)
    return done


def _queue(manifest: Manifest, done: Converted) -> Draft:
    each = Fields(manifest)
    parent = str(each.take("spec.parent", "") or "")
    draft = Draft(each.name, each.named, parent="" if parent in _ROOT else parent)
    weight = each.take("spec.weight", 1)
    guarantee = each.take("spec.guarantee.resource") or {}
    deserved = each.take("spec.deserved") or {}
    capability = each.take("spec.capability") or {}
    if manifest.get("spec", {}).get("reclaimable") is True:
        each.take("spec.reclaimable")
    for name in sorted({*guarantee, *deserved, *capability}):
        resource = {NVIDIA_GPU: "gpu", "cpu": "cpu", "memory": "memory"}.get(name)
        if resource is None:
            why = "Ballast counts GPUs, CPU and memory"
            done.lost.append(Lost(each.named, f"resource {name}", why))
            continue
        if name in guarantee:
            why = "no GPU is kept idle for its owner: what is lent comes back by reclaim"
            done.lost.append(Lost(each.named, f"spec.guarantee.resource.{name}", why))
        where = f"spec.{'deserved' if name in deserved else 'guarantee.resource'}.{name}"
        quota = deserved.get(name, guarantee.get(name))
        limit, is_gpus = capability.get(name), resource == "gpu"
        draft.set(
            "",
            resource,
            quota=quantity_of(each.named, where, quota, is_gpus=is_gpus),
            limit=quantity_of(each.named, f"spec.capability.{name}", limit, is_gpus=is_gpus),
        )
    draft.set("", "gpu", overQuotaWeight=None if weight == 1 else weight)
    if manifest.get("spec", {}).get("reclaimable") is False:
        done.lost.append(Lost(each.named, "spec.reclaimable=False", _WHY["spec.reclaimable"]))
    done.lost += each.lost(_WHY)
    return draft


def _pod_group(manifest: Manifest, done: Converted, used: list[tuple[str, str]]) -> Manifest:
    each = Fields(manifest)
    spec: Manifest = {"minMember": max(1, each.take("spec.minMember", 1) or 1)}
    if (queue := each.take("spec.queue")) and queue != "default":
        spec["project"] = dns_name(queue)
        used.append((queue, each.namespace))
    if name := each.take("spec.priorityClassName"):
        spec["priorityClassName"] = name
    if tasks := each.take("spec.minTaskMember"):
        spec["subGroups"] = [
            {"name": dns_name(task), "minMember": n} for task, n in sorted(tasks.items())
        ]
    done.lost += each.lost(_WHY)
    return _group(each, spec)


def _group(each: Fields, spec: Manifest) -> Manifest:
    return new_object("GpuPodGroup", each.name, spec, namespace=each.namespace or "default")


def _job(manifest: Manifest, done: Converted, used: list[tuple[str, str]]) -> list[Manifest]:
    each = Fields(manifest)
    # Volcano's own default names of tasks.
    tasks = [
        {**task, "name": task.get("name") or f"default{i}"}
        for i, task in enumerate(each.take("spec.tasks") or ())
    ]
    least = each.take("spec.minAvailable") or sum(task.get("replicas", 1) for task in tasks)
    queue, priority = each.take("spec.queue"), each.take("spec.priorityClassName")
    retries, ttl = each.take("spec.maxRetry"), each.take("spec.ttlSecondsAfterFinished")
    each.take("spec.schedulerName")
    # A plugin without arguments is an empty list, but still enabled.
    for plugin in each.take("spec.plugins") or {}:
        done.lost.append(Lost(each.named, f"spec.plugins.{plugin}", _WHY["spec.plugins"]))
    spec: Manifest = {}
    if queue and queue != "default":
        spec["project"] = dns_name(queue)
        used.append((queue, each.namespace))
    if priority:
        spec["priorityClassName"] = priority
    templates = [_template(each, task, queue, done) for task in tasks]
    members = [task for task, template in zip(tasks, templates, strict=True) if has_gpus(template)]
    objects = [_group(each, spec | _minimums(each, tasks, members, least, done))] if members else []
    if tasks and not members:
        why = "no task requests GPUs, and pods without GPUs do not wait for each other"
        done.lost.append(Lost(each.named, f"spec.minAvailable={least}", why))
    for task, template in zip(tasks, templates, strict=True):
        if task in members:
            label(template, LABEL_POD_GROUP, each.name)
        if task in members and len(members) > 1:
            label(template, LABEL_SUB_GROUP, dns_name(task["name"]))
        objects.append(_task(each, task, template, is_one_of_many=len(tasks) > 1))
        objects[-1]["spec"] |= {"backoffLimit": retries} if retries is not None else {}
        objects[-1]["spec"] |= {"ttlSecondsAfterFinished": ttl} if ttl is not None else {}
    done.lost += each.lost(_WHY)
    return objects


def _minimums(
    each: Fields, tasks: list[Manifest], members: list[Manifest], least: int, done: Converted
) -> Manifest:
    """The minimum of the group of these tasks, and its sub-groups; only pods with GPUs count."""
    counted = least
    for task in tasks:
        if task not in members:
            why = "it requests no GPU, so its pods start at once and the group does not count them"
            done.lost.append(Lost(each.named, f"tasks.{task['name']}", why))
            counted -= task.get("replicas", 1)
    if len(members) == 1:
        return {"minMember": max(1, counted)}
    minimums: dict[str, int] = {
        dns_name(task["name"]): task["minAvailable" if "minAvailable" in task else "replicas"]
        for task in ({"replicas": 1, **each_of} for each_of in members)
    }
    least_of_all = sum(minimums.values())
    if counted < least_of_all:
        why = "every task keeps its own minimum here: the sum of them is the group's"
        done.lost.append(Lost(each.named, f"spec.minAvailable={least}", why))
    sub_groups = [{"name": name, "minMember": n} for name, n in minimums.items()]
    return {"minMember": max(counted, least_of_all), "subGroups": sub_groups}


def _template(each: Fields, task: Manifest, queue: Any, done: Converted) -> Manifest:
    """The task's pod template in Ballast's words, without its group."""
    template: Manifest = copy.deepcopy(task.get("template") or {})
    drop_scheduler(template, SCHEDULERS)
    change(template, _VGPU, each.named, done)
    if queue and queue != "default":
        label(template, LABEL_PROJECT, dns_name(queue))
    spec = template.setdefault("spec", {})
    if spec.get("restartPolicy", "Always") == "Always":
        spec["restartPolicy"] = "Never"
    for key in ("policies", "maxRetry", "topologyPolicy", "dependsOn"):
        if task.get(key):
            why = "a Job restarts by its backoffLimit and podFailurePolicy, and waits for no other"
            done.lost.append(Lost(each.named, f"tasks.{task['name']}.{key}", why))
    return template


def _task(each: Fields, task: Manifest, template: Manifest, *, is_one_of_many: bool) -> Manifest:
    n = task.get("replicas", 1)
    name = f"{each.name}-{dns_name(task['name'])}" if is_one_of_many else each.name
    of_job = {"parallelism": n, "completions": n, "template": template}
    space = each.namespace or "default"
    return new_object("Job", name, of_job, namespace=space, version="batch/v1")

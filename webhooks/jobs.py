"""Changes to Jobs at creation, so that an eviction by Ballast does not count as a failure of the
Job.

Kubernetes counts an evicted pod of a Job as failed, and the Job fails after `backoffLimit` (6) such
pods unless its `podFailurePolicy` ignores disruptions. The policy cannot be added later. So a Job
with GPU pods in a namespace of a project gets that policy when it is created. Jobs without GPU pods
are left alone: Ballast does not evict their pods.

A policy in the manifest stays as it is. It is immutable once the Job exists, so each later `kubectl
apply` of the manifest would be refused. If that policy counts disruptions, or if Kubernetes allows
none (`restartPolicy: OnFailure`), the author is warned.

CronJob, JobSet, TrainJob and ScaledJob create Jobs, which are reviewed here as well. Where a JobSet
or a ScaledJob states no restart policy, JobSet's webhook and KEDA write OnFailure, so Never is
written first. Other operators decide themselves what an evicted pod means: if it ends the whole
job, the author is warned (of Kubeflow's jobs by `webhooks.kubeflow`, of Argo's Workflows by
`webhooks.argo`).

Warnings about the pods of a template are given here too, also for kinds that create no Jobs: a
warning about a pod itself reaches only the controller that creates it, also in namespaces without a
project. Labels and annotations are checked in every template, since a misspelt one may be all that
asks for a GPU.

Source: kubernetes `pkg/apis/batch/v1/defaults.go`, `pkg/controller/job/pod_failure_policy.go`;
jobset `pkg/webhooks/jobset_webhook.go`; keda `pkg/scaling/executor/scale_jobs.go`; kuberay
`apis/ray/v1/rayjob_types.go`.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from extender.api.jobs import DISRUPTION, counts_disruptions
from extender.api.objects import ObjectMeta, Pod, PodTemplateSpec
from extender.api.units import UnitError
from extender.api.workload import read_min_member
from webhooks import argo, kubeflow
from webhooks.forbidden import uncounted
from webhooks.mutate import foresee
from webhooks.owners.origin import Origin, makes_gpu_pods
from webhooks.owners.table import INFERENCE
from webhooks.parts import MAX_ENTRIES, Document, find_parts
from webhooks.patch import PatchBuilder
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, allowed, patched
from webhooks.spelling import misplaced, misspelt

NEVER: Final = "Never"
#: Kubernetes' default for `backoffLimit`.
USUAL_BACKOFF: Final = 6

#: The kind of work of pods by the kind of the object that creates them.
_WORK: Final = {"RayService": INFERENCE}

#: Raised when a document does not have the shape of its kind.
_MISSHAPEN: Final = (LookupError, AttributeError, TypeError)


def decide_job(request: Request, projects: ProjectIndex) -> Decision:
    """The changes to the object in `request`, and warnings; it is never refused."""
    read = _READERS.get(request.kind.kind)
    if read is None or request.sub_resource:
        return allowed()
    if request.operation != "CREATE" and read is not _of_app:
        return allowed()
    if projects.project_of(request.namespace) is None:
        read = _of_no_project
    try:
        patch = PatchBuilder(request.object)
        named = request.name or patch.document["metadata"].get("generateName") or ""
        request = msgspec.structs.replace(request, name=named)
        warnings = _unread_keys(patch.document)
        is_new = True
        if request.operation == "UPDATE":
            before = msgspec.json.decode(request.old_object)
            known = _unread_keys(before)
            warnings = [each for each in warnings if each not in known]
            is_new = _templates_of(before) != _templates_of(patch.document)
        if is_new:
            warnings += read(patch, request, projects)
        if is_new and read is not _of_no_project:
            warnings += uncounted(each["spec"] for each in _templates_of(patch.document).values())
    except (msgspec.MsgspecError, RecursionError, ValueError, *_MISSHAPEN):
        # The API server or the kind's own webhook reports the error.
        return allowed()
    return patched(patch.ops, *dict.fromkeys(warnings))


def _of_no_project(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """The warnings that pods draw in a namespace without a project; nothing is changed."""
    for template in _templates_of(patch.document).values():
        if _asks_for_gpu(template):
            yield from _foreseen(request, template, projects)


def _of_job(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Gives the Job the policy if it may have one; yields warnings."""
    spec = patch.document["spec"]
    if not _asks_for_gpu(spec["template"]):
        return
    yield from _job_warnings(request, spec, "this Job", projects)
    if spec.get("podFailurePolicy") is None and _restart_policy(spec) == NEVER:
        conditions = [{"type": DISRUPTION, "status": "True"}]
        rule = {"action": "Ignore", "onPodConditions": conditions}
        patch.set(("spec", "podFailurePolicy"), {"rules": [rule]})
        # Kubernetes has already set the default for a Job without a policy; a Job with a policy
        # must have Failed.
        patch.set(("spec", "podReplacementPolicy"), "Failed")


def _of_app(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Warnings about a new template of a Deployment or StatefulSet; nothing is changed."""
    template = patch.document["spec"]["template"]
    if _asks_for_gpu(template):
        yield from _foreseen(request, template, projects)
        yield from _sequential_gang(patch.document)


def _sequential_gang(document: Document) -> Iterator[str]:
    """Warns about a gang in a StatefulSet that starts pods one after the other."""
    spec = document["spec"]
    if document["kind"] != "StatefulSet" or spec.get("podManagementPolicy") == "Parallel":
        return
    meta = msgspec.convert(spec["template"], PodTemplateSpec).metadata
    try:
        min_member = read_min_member(meta.annotations, meta.labels)
    except UnitError:
        return
    if min(min_member, spec.get("replicas", 1)) > 1:
        yield (
            f"its pods never start: a gang starts when {min_member} pods exist, and a StatefulSet"
            " creates a pod when the one before runs; set podManagementPolicy: Parallel"
        )


def _of_cron_job(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Warnings only: the Jobs that it creates are reviewed themselves."""
    spec = patch.document["spec"]["jobTemplate"]["spec"]
    if _asks_for_gpu(spec["template"]):
        yield from _job_warnings(request, spec, "its Jobs", projects)


def _of_templates(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Warnings about the pods of any kind whose operator replaces an evicted pod."""
    for template in _pod_templates(patch.document["spec"], "spec").values():
        if _asks_for_gpu(template):
            yield from _foreseen(request, template, projects)


def _of_job_set(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Sets restartPolicy Never, so that its Jobs can get the policy; yields warnings."""
    for ix, job in enumerate((patch.document["spec"].get("replicatedJobs") or ())[:MAX_ENTRIES]):
        spec = job["template"]["spec"]
        if not _asks_for_gpu(spec["template"]):
            continue
        if not _restart_policy(spec):
            path = "replicatedJobs", ix, "template", "spec", "template", "spec", "restartPolicy"
            patch.set(("spec", *path), NEVER)
        yield from _job_warnings(request, spec, f"replicated Job {job.get('name')!s:.63}", projects)


def _of_scaled_job(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Sets restartPolicy Never, so that its Jobs can get the policy; yields warnings."""
    spec = patch.document["spec"]["jobTargetRef"]
    if not _asks_for_gpu(spec["template"]):
        return
    if not _restart_policy(spec):
        patch.set(("spec", "jobTargetRef", "template", "spec", "restartPolicy"), NEVER)
    yield from _job_warnings(request, spec, "its Jobs", projects)


def _of_ray_job(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """KubeRay creates a new cluster for each retry, up to `backoffLimit` of them."""
    spec = patch.document["spec"]
    cluster = spec.get("rayClusterSpec") or {}
    ours = [each for each in _pod_templates(cluster, "").values() if _asks_for_gpu(each)]
    for each in ours:
        yield from _foreseen(request, each, projects)
    yield from _early_deadline(spec if ours else {}, "this RayJob")
    if ours and not spec.get("backoffLimit"):
        yield (
            "this RayJob fails when Ballast evicts its head pod: KubeRay restarts it only with"
            " spec.backoffLimit above 0, such as 10"
        )


def _of_replicas(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Warnings only: the training operator decides what an evicted pod means to its job."""
    spec, kind = patch.document["spec"], request.kind.kind
    replicas = kubeflow.replica_specs(spec)[:MAX_ENTRIES]
    ours = [(name, each) for name, each in replicas if _asks_for_gpu(each["template"])]
    if not ours:
        return
    for name, replica in ours:
        yield from _foreseen(request, replica["template"], projects)
        yield from kubeflow.on_eviction(kind, spec, name, replica)
    yield from _early_deadline(spec.get("runPolicy") or {}, f"this {kind}")
    yield from kubeflow.on_end(kind, spec)


def _of_mpi_job(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """The launcher fails when a worker is evicted, and the launcher's Job counts that failure."""
    spec = patch.document["spec"]
    ours = [each for each in _pod_templates(spec, "spec").values() if _asks_for_gpu(each)]
    if not ours:
        return
    for each in ours:
        yield from _foreseen(request, each, projects)
    policy = spec.get("runPolicy") or {}
    yield from _early_deadline(policy, "this MPIJob")
    launcher = dict(kubeflow.replica_specs(spec)).get("Launcher")
    if launcher and not _asks_for_gpu(launcher["template"]) and request.kind.version != "v1":
        yield from kubeflow.on_start(spec)
    yield from kubeflow.on_end("MPIJob", spec)
    limit = policy.get("backoffLimit", USUAL_BACKOFF)
    if limit <= USUAL_BACKOFF:
        yield (
            "the launcher of this MPIJob fails when Ballast evicts a worker"
            f" (runPolicy.backoffLimit: {limit}): allow more, such as backoffLimit: 100"
        )


def _of_workflow(patch: PatchBuilder, request: Request, projects: ProjectIndex) -> Iterator[str]:
    """Warnings only: a retryStrategy decides what an evicted pod means to its step."""
    spec = argo.workflow_spec(patch.document)
    is_ours = False
    for template in argo.templates_with_pods(spec.get("templates"), "").values():
        pod = argo.pod_template(spec, template)
        if not (_asks_for_gpu(pod) or argo.is_patched_with_gpus(spec, template)):
            continue
        is_ours = True
        if not argo.has_parameters(pod):
            yield from _foreseen(request, pod, projects)
        yield from argo.on_eviction(spec, template, pod)
        yield from argo.on_wait(spec, template)
    yield from _early_deadline(spec if is_ours else {}, f"this {request.kind.kind}")


_READERS: Final = {
    "Deployment": _of_app,
    "StatefulSet": _of_app,
    "Job": _of_job,
    "CronJob": _of_cron_job,
    "JobSet": _of_job_set,
    "LeaderWorkerSet": _of_templates,
    "ScaledJob": _of_scaled_job,
    "RayCluster": _of_templates,
    "RayJob": _of_ray_job,
    "RayService": _of_templates,
    "MPIJob": _of_mpi_job,
    "JAXJob": _of_replicas,
    "PaddleJob": _of_replicas,
    "PyTorchJob": _of_replicas,
    "TFJob": _of_replicas,
    "XGBoostJob": _of_replicas,
    "CronWorkflow": _of_workflow,
    "Workflow": _of_workflow,
    "WorkflowTemplate": _of_workflow,
}


def _job_warnings(
    request: Request, spec: Document, what: str, projects: ProjectIndex
) -> Iterator[str]:
    """Warnings for the author of a Job's spec."""
    yield from _foreseen(request, spec["template"], projects)
    yield from _early_deadline(spec, what)
    limit = spec.get("backoffLimit", USUAL_BACKOFF)
    counts = f"an eviction by Ballast counts as a failure of {what} (backoffLimit: {limit}):"
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        if counts_disruptions(policy.get("rules") or ()):
            yield (
                f"{counts} let the first rule of podFailurePolicy be {{action: Ignore,"
                f" onPodConditions: [{{type: {DISRUPTION}}}]}}"
            )
    elif (restart := _restart_policy(spec)) != NEVER:
        yield (
            f"{counts} Kubernetes allows no podFailurePolicy with restartPolicy: {restart};"
            f" set restartPolicy: {NEVER}, and Ballast adds one"
        )


def _early_deadline(spec: Document, what: str) -> Iterator[str]:
    """Warns about a deadline that includes the wait for GPUs."""
    if seconds := spec.get("activeDeadlineSeconds"):
        yield (
            f"activeDeadlineSeconds: {seconds} ends {what} also while its pods wait for GPUs: allow"
            " for the wait, or set it in the pod template, where it counts from the pod's start"
        )


def _restart_policy(spec: Document) -> str:
    policy: str = spec["template"]["spec"].get("restartPolicy") or ""
    return policy


def _asks_for_gpu(template: Document) -> bool:
    return makes_gpu_pods(msgspec.convert(template, PodTemplateSpec))


def _pod_templates(value: Any, path: str) -> dict[str, Document]:
    """The pod templates in a part of a document, by their paths."""
    return find_parts(value, path, lambda each: "containers" in (each.get("spec") or {}))


def _templates_of(document: Document) -> dict[str, Document]:
    """The pod templates of an object by their paths."""
    if _READERS.get(document["kind"]) is not _of_workflow:
        return _pod_templates(document["spec"], "spec")
    spec = argo.workflow_spec(document)
    found = argo.templates_with_pods(document["spec"], "spec")
    return {path: argo.pod_template(spec, each) for path, each in found.items()}


def _unread_keys(document: Document) -> list[str]:
    """Warnings about words that are misspelt in a pod template, and about labels and annotations
    that are on the object and belong on its pods."""
    templates = {
        path: msgspec.convert(each, PodTemplateSpec)
        for path, each in _templates_of(document).items()
    }
    warnings = [each for template in templates.values() for each in misspelt(template)]
    metas = {path: template.metadata for path, template in templates.items()}
    own = msgspec.convert(document["metadata"], ObjectMeta)
    return [*warnings, *misplaced(own, metas, document["kind"])]


def _foreseen(request: Request, template: Document, projects: ProjectIndex) -> list[str]:
    """The warnings that the webhook would give about the pods of the template."""
    read = msgspec.convert(template, PodTemplateSpec)
    read.metadata.namespace, read.metadata.name = request.namespace, request.name
    origin = Origin(work=_WORK.get(request.kind.kind, ""))
    return foresee(Pod(read.metadata, read.spec), template["spec"], projects, origin)

"""What an eviction means to the steps of an Argo Workflow, as warnings for their authors.

Argo creates no pod again unless a retryStrategy says so. An evicted pod has failed where Argo saw
its containers end, and is an error where Argo saw only that it is gone, so only `Always` covers
every eviction. Each counts towards `limit`.

A template of a Workflow is no pod template: the pod gets its containers, and the metadata of both.
Numbers may be parameters, which are filled in when the pod is created.

Source: argo-workflows 4.0.5 `workflow/controller/operator.go::processNodeRetries`,
`podReconciliation` and `workflowpod.go::createWorkflowPod`.
"""

from collections.abc import Iterator
from typing import Any, Final

from extender.api import names
from extender.api.aliases import PREEMPTIBILITY_LABELS, first_of
from webhooks.parts import Document, find_parts

ALWAYS: Final = "Always"
#: The limit up to which an author is warned; the default of a Job's `backoffLimit`.
FEW_RETRIES: Final = 6
PARAMETER: Final = "{{"
_OF_POD: Final = ("schedulerName", "priorityClassName", "nodeSelector", "initContainers")


def workflow_spec(document: Document) -> Document:
    """The spec of a Workflow, or of the Workflows that a WorkflowTemplate or CronWorkflow makes."""
    spec: Document = document["spec"]
    inner: Document = spec.get("workflowSpec") or spec
    return inner


def templates_with_pods(value: Any, path: str) -> dict[str, Document]:
    """The templates of a part of a Workflow that create a pod, also inline ones, by their paths."""
    return find_parts(value, path, _containers)


def pod_template(spec: Document, template: Document) -> Document:
    """The pods of a template of the Workflow with this spec."""
    parts = (spec.get("podMetadata") or {}, template.get("metadata") or {})
    meta = {
        key: {**(parts[0].get(key) or {}), **(parts[1].get(key) or {})}
        for key in ("annotations", "labels")
    }
    containers = [
        {"name": "main"} | each | {"resources": _resources(each)}
        for each in (*_containers(template), *(template.get("sidecars") or ()))
    ]
    merged = spec | template
    pod = {key: merged[key] for key in _OF_POD if merged.get(key)}
    return {"metadata": meta, "spec": pod | {"containers": containers}}


def _resources(container: Document) -> Document:
    """The container's resources. Argo's CRDs accept floats, which become texts as in a pod."""
    found = container.get("resources") or {}
    return {
        field: {key: str(each) if isinstance(each, float) else each for key, each in listed.items()}
        for field in ("limits", "requests")
        if (listed := found.get(field))
    }


def is_patched_with_gpus(spec: Document, template: Document) -> bool:
    """Whether a `podSpecPatch`, a text with parameters, names a resource of NVIDIA."""
    return any("nvidia.com/" in str(each.get("podSpecPatch", "")) for each in (spec, template))


def has_parameters(value: Any) -> bool:
    """Whether a part of it is filled in later."""
    if isinstance(value, dict):
        return any(map(has_parameters, value.values()))
    if isinstance(value, list):
        return any(map(has_parameters, value))
    return isinstance(value, str) and PARAMETER in value


def on_eviction(spec: Document, template: Document, pod: Document) -> Iterator[str]:
    """Warns if an eviction may fail the step, or a few of them do."""
    if first_of(pod["metadata"]["labels"], PREEMPTIBILITY_LABELS) == names.NON_PREEMPTIBLE:
        return
    defaults = spec.get("templateDefaults") or {}
    found = (each.get("retryStrategy") for each in (template, defaults, spec))
    strategy = next((each for each in found if each is not None), None)
    what = f"template {template.get('name', '')!s:.63}"
    cure = "set retryStrategy: {limit: 100, retryPolicy: Always}"
    if strategy is None:
        yield f"an eviction by Ballast fails {what}, which has no retryStrategy: {cure}"
        return
    policy = strategy.get("retryPolicy") or (ALWAYS if strategy.get("expression") else "OnFailure")
    if policy != ALWAYS:
        yield f"an eviction by Ballast may fail {what} (retryPolicy: {policy}): {cure}"
    limit = str(strategy.get("limit", ""))
    if limit.isdecimal() and int(limit) <= FEW_RETRIES:
        yield f"evictions by Ballast count towards limit: {limit} of {what}: {cure}"


def on_wait(spec: Document, template: Document) -> Iterator[str]:
    """Warns about a deadline of the template that includes the wait for GPUs."""
    merged = (spec.get("templateDefaults") or {}) | template
    if timeout := merged.get("timeout"):
        yield (
            f"timeout: {timeout} ends template {template.get('name', '')!s:.63} also while its pod"
            " waits for GPUs: set activeDeadlineSeconds there, which counts from the pod's start"
        )


def _containers(template: Document) -> list[Document]:
    """The containers of a template that creates a pod; empty for others."""
    single = [template.get(key) for key in ("container", "script")]
    several = (template.get("containerSet") or {}).get("containers") or ()
    return [each for each in (*single, *several) if isinstance(each, dict)]

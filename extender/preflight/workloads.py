"""Checks of the projects' namespaces: Jobs, budgets, and the label."""

from collections.abc import Iterator
from typing import Final

from extender.api.demand import GPU_ANNOTATIONS, GPU_RESOURCES, mig_slices
from extender.api.jobs import counts_disruptions
from extender.api.names import LABEL_MANAGED, MANAGED
from extender.preflight.facts import Facts, Job
from extender.preflight.findings import PreflightFinding, State, some

_ENDED: Final = ("Complete", "Failed")


def check_workloads(facts: Facts) -> Iterator[PreflightFinding]:
    """Every finding about projects and their namespaces."""
    yield from _namespaces(facts)
    yield from _without_project(facts)
    yield _jobs(facts)
    yield _budgets(facts)


def _namespaces(facts: Facts) -> Iterator[PreflightFinding]:
    listed: dict[str, list[str]] = {}
    for project in facts.projects:
        for namespace in project.spec.namespaces:
            listed.setdefault(namespace, []).append(project.metadata.name)
    several = [f"{name} ({', '.join(sorted(of))})" for name, of in listed.items() if len(of) > 1]
    if several:
        advice = "list a namespace in one GpuProject only"
        found = f"namespaces of several projects: {some(several)}"
        yield PreflightFinding("one project per namespace", State.WARN, found, advice)
    labels = {each.metadata.name: each.metadata.label(LABEL_MANAGED) for each in facts.namespaces}
    bare = [name for name in listed if labels.get(name, MANAGED) != MANAGED]
    if bare:
        advice = "start ballast-control, which sets it; until then policies do not guard GPUs there"
        found = f"{some(bare)} without {LABEL_MANAGED}=true"
        yield PreflightFinding("label of projects' namespaces", State.FAIL, found, advice)
    elif listed:
        yield PreflightFinding(
            "label of projects' namespaces", State.OK, f"{len(listed)} namespaces"
        )


def _without_project(facts: Facts) -> Iterator[PreflightFinding]:
    """Pods of a project that no longer exists or no longer lists their namespace."""
    listed = {name for project in facts.projects for name in project.spec.namespaces}
    left = sorted(
        row.key
        for node in facts.ledger
        for row in node.spec.rows
        if row.namespace not in listed and row.state != "nominated"
    )
    if left and not facts.lacks("gpuprojects"):
        advice = (
            "list their namespaces in a GpuProject, or delete them: they count against no quota and"
            " are not evicted for other work"
        )
        found = f"{some(left)} hold GPUs"
        yield PreflightFinding("pods without a project", State.WARN, found, advice)


def _jobs(facts: Facts) -> PreflightFinding:
    doomed = [job.metadata.key for job in facts.jobs if _would_die(job)]
    if doomed:
        advice = (
            "an eviction counts against their backoffLimit: create them anew with a"
            " podFailurePolicy that ignores DisruptionTarget (the webhook adds it to new Jobs)"
        )
        return PreflightFinding("Jobs and evictions", State.WARN, some(doomed), advice)
    return PreflightFinding("Jobs and evictions", State.OK, f"{len(facts.jobs)} Jobs seen")


def _would_die(job: Job) -> bool:
    """Whether the Job requests GPUs, is not finished, and counts evictions as failures."""
    ended = any(
        each.get("type") in _ENDED and each.get("status") == "True"
        for each in job.status.conditions or ()
    )
    rules = (job.spec.pod_failure_policy or {}).get("rules") or ()
    return not ended and _asks_for_gpu(job) and counts_disruptions(rules)


def _asks_for_gpu(job: Job) -> bool:
    template = job.spec.template
    if any(key in GPU_ANNOTATIONS for key in template.metadata.annotations or ()):
        return True
    containers = [*template.spec.containers, *(template.spec.init_containers or ())]
    return any(
        name in GPU_RESOURCES or mig_slices(name)
        for each in containers
        for listed in (each.resources.requests, each.resources.limits)
        for name in listed or ()
    )


def _budgets(facts: Facts) -> PreflightFinding:
    closed = [
        each.metadata.key
        for each in facts.budgets
        if each.status.expected_pods > 0 and each.status.disruptions_allowed == 0
    ]
    if closed:
        advice = (
            "budgets that allow no disruption hold back reclaim for disruptionBudgetSeconds of the"
            " GpuNodePool or GpuProject; after that pods are deleted"
        )
        return PreflightFinding("disruption budgets", State.WARN, some(closed), advice)
    return PreflightFinding("disruption budgets", State.OK, f"{len(facts.budgets)} seen")

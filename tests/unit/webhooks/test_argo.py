"""Warnings for the authors of Argo Workflows."""

from typing import Any

import pytest

from tests.support.admission import Document
from tests.unit.webhooks.authored import decision_on, warnings

GPU = {"limits": {"nvidia.com/gpu": "1"}}
LASTING = {"retryStrategy": {"limit": 100, "retryPolicy": "Always"}}


def step(resources: Document | None = None, **more: Any) -> Document:
    """A template whose pod has one GPU."""
    container = {"image": "i", "resources": GPU if resources is None else resources}
    return {"name": "train", "container": container} | more


def workflow(*templates: Document, kind: str = "Workflow", **spec: Any) -> Document:
    flow = {"entrypoint": "train", "templates": list(templates)} | spec
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "nightly", "namespace": "team-a"},
        "spec": {"schedules": ["@daily"], "workflowSpec": flow} if kind == "CronWorkflow" else flow,
    }


@pytest.mark.parametrize("kind", ["Workflow", "WorkflowTemplate", "CronWorkflow"])
def test_step_that_an_eviction_fails_is_warned_of(kind: str) -> None:
    (warning,) = decision_on(workflow(step(), kind=kind)).warnings
    assert warning.startswith("an eviction by Ballast fails template train, which has no retry")
    assert decision_on(workflow(step(**LASTING), kind=kind)).warnings == ()


@pytest.mark.parametrize("where", ["template", "spec"])
def test_step_that_requests_its_gpus_by_a_patch_is_warned_of(where: str) -> None:
    limits = 'containers: [{name: main, resources: {limits: {nvidia.com/gpu: "{{inputs.n}}"}}}]'
    patch = {"podSpecPatch": limits}
    of_template, of_spec = (patch, {}) if where == "template" else ({}, patch)
    (warning,) = decision_on(workflow(step(resources={}, **of_template), **of_spec)).warnings
    assert warning.startswith("an eviction by Ballast fails template train, which has no retry")


def test_step_with_a_quantity_that_is_a_float_is_read() -> None:
    made = workflow(step({"limits": {"nvidia.com/gpu": 1, "cpu": 0.5}}))
    (warning,) = decision_on(made).warnings
    assert "which has no retryStrategy" in warning


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ({}, "(retryPolicy: OnFailure)"),
        ({"limit": "10"}, "(retryPolicy: OnFailure)"),
        ({"retryPolicy": "OnError"}, "(retryPolicy: OnError)"),
        ({"retryPolicy": "OnTransientError"}, "(retryPolicy: OnTransientError)"),
        ({"retryPolicy": "Always"}, ""),
        ({"retryPolicy": "Always", "limit": "6"}, "count towards limit: 6"),
        ({"retryPolicy": "Always", "limit": 7}, ""),
        ({"retryPolicy": "Always", "limit": "{{inputs.parameters.n}}"}, ""),
        # With an expression, Argo's default is Always.
        ({"expression": "lastRetry.exitCode != '2'"}, ""),
    ],
)
@pytest.mark.parametrize("where", ["template", "templateDefaults", "spec"])
def test_every_eviction_is_covered_by_always_only(
    strategy: Document, words: str, where: str
) -> None:
    stated = {"retryStrategy": strategy}
    made = {
        "template": workflow(step() | stated),
        "templateDefaults": workflow(step(), templateDefaults=stated),
        "spec": workflow(step(), retryStrategy=strategy),
    }[where]
    found = warnings(made)
    assert words in found if words else found == ""


@pytest.mark.parametrize(
    "template",
    [
        step(resources={}),
        {"name": "main", "steps": [[{"name": "a", "template": "train"}]]},
        {"name": "make", "resource": {"action": "create", "manifest": "kind: Job"}},
        step(metadata={"labels": {"ballast.dev/preemptibility": "non-preemptible"}}),
    ],
)
def test_step_that_is_not_evicted_is_not_warned_of(template: Document) -> None:
    assert decision_on(workflow(template)).warnings == ()


@pytest.mark.parametrize(
    "template",
    [
        {"name": "train", "script": {"image": "i", "source": "pass", "resources": GPU}},
        {"name": "train", "containerSet": {"containers": [{"name": "a", "resources": GPU}]}},
        {"name": "main", "steps": [[{"name": "a", "inline": step()}]]},
        {"name": "main", "dag": {"tasks": [{"name": "a", "inline": step()}]}},
        step(resources={}, metadata={"annotations": {"gpu-fraction": "0.5"}}),
        step(resources={"limits": {"nvidia.com/gpu": "{{inputs.parameters.gpus}}"}}),
    ],
)
def test_every_template_whose_pods_have_gpus_is_looked_at(template: Document) -> None:
    (warning,) = decision_on(workflow(template)).warnings
    assert "fails template train, " in warning


def test_metadata_of_all_pods_counts_too() -> None:
    made = workflow(step(resources={}), podMetadata={"annotations": {"gpu-fraction": "0.5"}})
    assert "fails template train, " in warnings(made)


def test_author_of_a_workflow_reads_why_its_pods_will_be_refused() -> None:
    made = workflow(step(resources={}, metadata={"annotations": {"gpu-fraction": "2"}}, **LASTING))
    assert "its pods will be refused: InvalidRequest" in warnings(made)


def test_deadlines_that_include_the_wait_for_gpus_are_warned_of() -> None:
    made = workflow(step(timeout="1h", **LASTING), activeDeadlineSeconds=3600)
    of_template, of_workflow = decision_on(made).warnings
    assert of_template.startswith("timeout: 1h ends template train also while")
    assert of_workflow.startswith("activeDeadlineSeconds: 3600 ends this Workflow also while")
    assert warnings(workflow(step(activeDeadlineSeconds=3600, **LASTING))) == ""


def test_author_of_a_workflow_is_told_of_misspelt_and_misplaced_words() -> None:
    made = workflow(step(metadata={"annotations": {"gpu_fraction": "0.5"}}, **LASTING))
    made["metadata"]["labels"] = {"ballast.dev/workload-kind": "build"}
    assert decision_on(made).warnings == (
        "annotation gpu_fraction is not read; did you mean the annotation gpu-fraction?",
        "label ballast.dev/workload-kind has no effect on a Workflow: Ballast reads it on pods;"
        " write it into spec.templates[0].metadata.labels",
    )


def test_workflow_from_a_template_is_left_to_the_template() -> None:
    made = workflow(workflowTemplateRef={"name": "train"})
    del made["spec"]["templates"]
    assert decision_on(made).warnings == ()


@pytest.mark.parametrize("spec", [None, [], {}, 7, {"templates": 7}, {"templates": [7, {}]}])
def test_what_is_no_workflow_is_left_to_argos_own_validation(spec: Any) -> None:
    assert decision_on(workflow() | {"spec": spec}).ops == ()

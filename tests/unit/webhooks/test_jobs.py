"""Changes to a Job, or an object that makes Jobs, when it is created."""

from typing import Any

import pytest
import yaml

from extender.api import names
from extender.api.jobs import counts_disruptions
from tests.support.admission import Document, index_of, project
from tests.unit.webhooks.authored import (
    DEADLINE,
    decision_on,
    job,
    mpi_job,
    pytorch_job,
    ray_job,
    stored,
    template,
    warnings,
)

IGNORED = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}


def test_stock_job_gets_a_policy_by_which_an_eviction_is_no_failure() -> None:
    after = stored(job())
    assert after["spec"]["podFailurePolicy"] == IGNORED
    assert after["spec"]["podReplacementPolicy"] == "Failed"
    assert decision_on(job()).warnings == ()


def test_changed_job_reviewed_again_stays_as_it_is() -> None:
    assert decision_on(stored(job())).ops == ()


def test_backoff_limit_per_index_makes_no_difference() -> None:
    indexed = job(backoffLimitPerIndex=1, completionMode="Indexed", completions=4, parallelism=4)
    assert stored(indexed)["spec"]["podFailurePolicy"] == IGNORED


@pytest.mark.parametrize(
    "document",
    [job(resources={"limits": {"cpu": "1"}}), job(resources={})],
)
def test_job_without_gpus_is_left_alone(document: Document) -> None:
    assert decision_on(document) == decision_on(document, index_of())
    assert not decision_on(document).ops


def test_job_of_a_namespace_without_a_project_is_left_alone() -> None:
    assert decision_on(job(), index_of(project("vision", "team-b"))).ops == ()


@pytest.mark.parametrize("more", [{"operation": "UPDATE"}, {"subResource": "status"}])
def test_later_changes_of_a_job_are_left_alone(more: dict[str, str]) -> None:
    assert decision_on(job(), None, **more).ops == ()


def test_job_whose_pods_restart_in_place_is_warned_of() -> None:
    after = decision_on(job("OnFailure"))
    assert after.ops == ()
    (warning,) = after.warnings
    assert "backoffLimit: 6" in warning
    assert "set restartPolicy: Never" in warning


@pytest.mark.parametrize(
    ("rules", "is_counted"),
    [
        ([], True),
        (IGNORED["rules"], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], False),
        ([{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
        ([{"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue"}]}], True),
        # The example of Kubernetes' documentation: 42 is no exit code of a stopped container.
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                *IGNORED["rules"],
            ],
            False,
        ),
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
                *IGNORED["rules"],
            ],
            True,
        ),
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [137, 143]}},
                *IGNORED["rules"],
            ],
            False,
        ),
        (
            [
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [143]}},
                *IGNORED["rules"],
            ],
            False,
        ),
        *(
            (
                [
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, code]}},
                    *IGNORED["rules"],
                ],
                True,
            )
            for code in (137, 143)
        ),
    ],
)
def test_own_policy_is_kept_and_warned_of_where_it_counts_evictions(
    rules: list[Document], is_counted: bool
) -> None:
    own = job(podFailurePolicy={"rules": rules})
    assert counts_disruptions(rules) is is_counted
    assert decision_on(own).ops == ()
    assert ("let the first rule of podFailurePolicy be" in warnings(own)) is is_counted


def test_author_of_a_job_reads_why_its_pods_will_be_refused() -> None:
    wrong = job(resources={})
    wrong["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "2"}
    assert "its pods will be refused: InvalidRequest" in warnings(wrong)
    assert "team-a/train" in warnings(wrong)


def test_author_of_a_job_that_is_a_gang_is_not_told_that_its_pods_start_one_by_one() -> None:
    document = job(parallelism=4)
    document["spec"]["template"]["metadata"] = {"labels": {names.LABEL_POD_GROUP: "train"}}
    assert warnings(document) == ""


def test_author_of_a_cron_job_is_warned_and_its_jobs_are_changed_one_by_one() -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": job("OnFailure")["spec"]}},
    }
    assert decision_on(cron).ops == ()
    assert "failure of its Jobs" in warnings(cron)
    cron["spec"]["jobTemplate"]["spec"] = job()["spec"]  # type: ignore[index]
    assert warnings(cron) == ""


def job_set(restart: str) -> Document:
    text = """
      kind: JobSet
      metadata: {name: llm}
      spec:
        replicatedJobs:
        - {name: fetch, template: {spec: {template: {spec: {containers: [{name: c}]}}}}}
        - {name: node, replicas: 2}
    """
    document: Document = yaml.safe_load(text)
    document["spec"]["replicatedJobs"][1]["template"] = {"spec": {"template": template(restart)}}
    return document


def test_job_set_that_states_no_restart_policy_gets_one_that_a_policy_is_allowed_with() -> None:
    fetch, node = stored(job_set(""))["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert "restartPolicy" not in fetch["template"]["spec"]["template"]["spec"]
    assert warnings(job_set("")) == ""


def test_job_set_that_states_on_failure_is_warned_of() -> None:
    assert "replicated Job node" in warnings(job_set("OnFailure"))
    assert decision_on(job_set("OnFailure")).ops == ()


def scaled_job(restart: str, resources: Document | None = None) -> Document:
    return {
        "kind": "ScaledJob",
        "metadata": {"name": "embed"},
        "spec": {"jobTargetRef": {"template": template(restart, resources)}},
    }


def test_scaled_job_that_states_no_restart_policy_gets_one_that_a_policy_is_allowed_with() -> None:
    target = stored(scaled_job(""))["spec"]["jobTargetRef"]
    assert target["template"]["spec"]["restartPolicy"] == "Never"
    assert warnings(scaled_job("")) == ""
    assert decision_on(scaled_job("", resources={})).ops == ()


def test_scaled_job_that_states_on_failure_is_warned_of() -> None:
    assert "failure of its Jobs (backoffLimit: 6)" in warnings(scaled_job("OnFailure"))
    assert decision_on(scaled_job("OnFailure")).ops == ()


@pytest.mark.parametrize(("limit", "is_warned"), [(None, True), (0, True), (3, False)])
def test_ray_job_that_is_never_started_anew_is_warned_of(
    limit: int | None, is_warned: bool
) -> None:
    document = ray_job() if limit is None else ray_job(backoffLimit=limit)
    assert ("spec.backoffLimit above 0" in warnings(document)) is is_warned


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (job(**DEADLINE), "this Job"),
        (ray_job(**DEADLINE), "this RayJob"),
        (pytorch_job("OnFailure", DEADLINE), "this PyTorchJob"),
        (mpi_job(DEADLINE), "this MPIJob"),
    ],
)
def test_deadline_that_includes_the_wait_for_gpus_is_warned_of(
    document: Document, what: str
) -> None:
    assert f"activeDeadlineSeconds: 3600 ends {what} also while" in warnings(document)


def test_deadline_of_the_pods_is_not_warned_of() -> None:
    limited = job()
    limited["spec"]["template"]["spec"] |= DEADLINE
    assert warnings(limited) == ""
    assert warnings(job(resources={}, **DEADLINE)) == ""


@pytest.mark.parametrize(
    "kind", ["Job", "CronJob", "JobSet", "ScaledJob", "RayJob", "MPIJob", "TFJob", "Lease"]
)
@pytest.mark.parametrize("spec", [None, [], {}, 7, {"template": []}, {"replicatedJobs": [1]}])
def test_what_is_no_object_of_its_kind_is_left_to_its_own_validation(kind: str, spec: Any) -> None:
    decision = decision_on({"kind": kind, "metadata": {"name": "x"}, "spec": spec})
    assert decision.ops == ()

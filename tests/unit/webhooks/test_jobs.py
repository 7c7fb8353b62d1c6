"""Changes to a Job when it is created."""

import copy
import json
from typing import Any

import jsonpatch
import pytest
import yaml

from extender.api import names
from extender.api.jobs import counts_disruptions
from tests.support.admission import Document, index_of, project, usual_index
from webhooks.jobs import decide_job
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, read

IGNORED = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def template(restart: str = "Never", resources: Document | None = None) -> Document:
    """A template of pods with one GPU each."""
    container = {"name": "main", "image": "i", "resources": GPU if resources is None else resources}
    spec: Document = {"containers": [container], "schedulerName": "default-scheduler"}
    return {"metadata": {}, "spec": spec | ({"restartPolicy": restart} if restart else {})}


def job(restart: str = "Never", resources: Document | None = None, **spec: Any) -> Document:
    """A Job as the API server sends it, with the defaults that it has filled in."""
    usual = {"backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": usual | {"template": template(restart, resources)} | spec,
    }


def decision_on(document: Document, index: ProjectIndex | None = None, **more: Any) -> Decision:
    version = document.get("apiVersion", "v1").rpartition("/")[2]
    request = {
        "uid": "u",
        "kind": {"group": "batch", "version": version, "kind": document["kind"]},
        "name": document["metadata"]["name"],
        "namespace": "team-a",
        "operation": "CREATE",
        "object": document,
    }
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request | more,
    }
    decision = decide_job(read(json.dumps(review).encode()), index or usual_index())
    assert decision.is_allowed
    return decision


def stored(document: Document) -> Document:
    """The object after the decision's patch, applied by a library that is not ours."""
    decision = decision_on(document)
    after: Document = jsonpatch.apply_patch(copy.deepcopy(document), list(decision.ops))
    return after


def warnings(document: Document) -> str:
    return "\n".join(decision_on(document).warnings)


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


DEADLINE: dict[str, Any] = {"activeDeadlineSeconds": 3600}


def ray_job(**spec: Any) -> Document:
    worker = {"groupName": "gpu", "template": template("")}
    head = {"template": template("", resources={})}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [worker]}
    return {
        "kind": "RayJob",
        "metadata": {"name": "tune"},
        "spec": {"rayClusterSpec": cluster} | spec,
    }


@pytest.mark.parametrize(("limit", "is_warned"), [(None, True), (0, True), (3, False)])
def test_ray_job_that_is_never_started_anew_is_warned_of(
    limit: int | None, is_warned: bool
) -> None:
    document = ray_job() if limit is None else ray_job(backoffLimit=limit)
    assert ("spec.backoffLimit above 0" in warnings(document)) is is_warned


#: Kind of the training operator -> the field with its replicas.
REPLICAS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
}


def replicated(
    kind: str, restart: str, role: str = "Worker", labels: Document | None = None, **spec: Any
) -> Document:
    """A job of the training operator; without `restart` the operator decides."""
    made = template("") | {"metadata": {"labels": labels or {}}}
    replica = {"replicas": 2, "template": made} | ({"restartPolicy": restart} if restart else {})
    return {
        "kind": kind,
        "metadata": {"name": "bert"},
        "spec": {REPLICAS[kind]: {role: replica}} | spec,
    }


def pytorch_job(restart: str, policy: Document | None = None) -> Document:
    return replicated("PyTorchJob", restart, runPolicy=policy or {})


def mpi_job(policy: Document, gpus: Document | None = None, **spec: Any) -> Document:
    """Workers with GPUs, and a launcher with these."""
    replicas = {
        "Launcher": {"template": template("", resources=gpus or {})},
        "Worker": {"template": template("")},
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "hpc"},
        "spec": {"runPolicy": policy, "mpiReplicaSpecs": replicas} | spec,
    }


@pytest.mark.parametrize(
    ("kind", "restart", "words"),
    [
        ("PyTorchJob", "", ""),
        ("PyTorchJob", "OnFailure", ""),
        ("PyTorchJob", "Always", ""),
        ("PyTorchJob", "Never", "restartPolicy: Never; set OnFailure"),
        ("PyTorchJob", "ExitCode", "a code below 128"),
        ("PaddleJob", "", ""),
        ("JAXJob", "", "restartPolicy: Never; set OnFailure"),
        ("JAXJob", "OnFailure", ""),
        ("XGBoostJob", "", "restartPolicy: Never; set ExitCode"),
        ("XGBoostJob", "OnFailure", "restartPolicy: OnFailure; set ExitCode"),
        ("XGBoostJob", "ExitCode", "a code below 128"),
        ("TFJob", "OnFailure", "whatever its restartPolicy"),
        ("TFJob", "ExitCode", "whatever its restartPolicy"),
    ],
)
def test_training_operator_job_that_an_eviction_fails_is_warned_of(
    kind: str, restart: str, words: str
) -> None:
    found = warnings(replicated(kind, restart))
    assert (f"an eviction by Ballast fails this {kind}" in found) is bool(words)
    assert words in found


def test_tf_job_with_dynamic_workers_survives_their_eviction() -> None:
    dynamic: dict[str, Any] = {"enableDynamicWorker": True}
    assert not warnings(replicated("TFJob", "OnFailure", **dynamic))
    assert "fails this TFJob" in warnings(replicated("TFJob", "OnFailure", "Chief", **dynamic))


@pytest.mark.parametrize("kind", REPLICAS)
def test_job_that_is_not_evicted_is_not_warned_of(kind: str) -> None:
    labels = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
    assert not warnings(replicated(kind, "Never", labels=labels))


ELASTIC: dict[str, Any] = {"elasticPolicy": {"minReplicas": 1}}
LEAST: dict[str, Any] = {"schedulingPolicy": {"minAvailable": 1}}


@pytest.mark.parametrize(
    ("spec", "is_warned"),
    [
        ({}, False),
        (ELASTIC, True),
        (ELASTIC | {"runPolicy": {"cleanPodPolicy": "None"}}, True),
        (ELASTIC | {"runPolicy": {"cleanPodPolicy": "Running"}}, False),
        ({"runPolicy": LEAST}, True),
        ({"runPolicy": LEAST | {"cleanPodPolicy": "All"}}, False),
    ],
)
def test_replicas_that_may_start_after_the_end_of_their_job_are_warned_of(
    spec: Document, is_warned: bool
) -> None:
    found = warnings(replicated("PyTorchJob", "OnFailure", **spec))
    assert ("cleanPodPolicy: Running" in found) is is_warned


@pytest.mark.parametrize(
    ("policy", "is_warned"),
    [({}, True), ({"cleanPodPolicy": "None"}, True), ({"cleanPodPolicy": "All"}, False)],
)
def test_workers_that_outlive_their_launcher_are_warned_of(
    policy: Document, is_warned: bool
) -> None:
    assert ("keep their GPUs after it has ended" in warnings(mpi_job(policy))) is is_warned


@pytest.mark.parametrize(
    ("document", "is_warned"),
    [
        (mpi_job({}), True),
        (mpi_job({}, launcherCreationPolicy="AtStartup"), True),
        (mpi_job({}, launcherCreationPolicy="WaitForWorkersReady"), False),
        (mpi_job({}, gpus=GPU), False),
        # Its launcher waits in an init container.
        (mpi_job({}) | {"apiVersion": "kubeflow.org/v1"}, False),
    ],
)
def test_launcher_that_fails_before_its_workers_start_is_warned_of(
    document: Document, is_warned: bool
) -> None:
    assert ("launcherCreationPolicy: WaitForWorkersReady" in warnings(document)) is is_warned


#: Kind of the training operator -> the field with its replicas.
REPLICAS = {
    "JAXJob": "jaxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}


@pytest.mark.parametrize("kind", REPLICAS)
def test_every_kind_of_the_training_operator_is_warned_of(kind: str) -> None:
    document = pytorch_job("Never", DEADLINE)
    document["kind"] = kind
    document["spec"][REPLICAS[kind]] = document["spec"].pop("pytorchReplicaSpecs")
    said = warnings(document)
    why = (
        ", whatever its restartPolicy: give replicas Worker the label"
        if kind == "TFJob"
        else ": replicas Worker have restartPolicy: Never"
    )
    assert f"fails this {kind}{why}" in said
    assert f"activeDeadlineSeconds: 3600 ends this {kind} also while" in said


@pytest.mark.parametrize(("policy", "is_warned"), [({}, True), ({"backoffLimit": 100}, False)])
def test_mpi_job_whose_launcher_may_fail_few_times_is_warned_of(
    policy: Document, is_warned: bool
) -> None:
    assert ("fails when Ballast evicts a worker" in warnings(mpi_job(policy))) is is_warned


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


def app(kind: str = "Deployment", resources: Document | None = None) -> Document:
    """A Deployment or StatefulSet of pods with one GPU each."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "llm", "namespace": "team-a"},
        "spec": {"replicas": 2, "template": template("Always", resources)},
    }


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_author_of_an_app_is_told_that_its_pods_will_be_refused(kind: str) -> None:
    made = app(kind)
    assert decision_on(made).warnings == ()
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(made).warnings
    assert "its pods will be refused: " in warning
    assert "use one of them" in warning
    assert decision_on(made).ops == ()


def test_update_of_an_app_is_looked_at_where_its_template_changes() -> None:
    before, after = app(), app()
    after["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert "its pods will be refused: " in warning
    scaled = copy.deepcopy(after)
    scaled["spec"]["replicas"] = 3
    assert decision_on(scaled, operation="UPDATE", oldObject=after).warnings == ()


@pytest.mark.parametrize(
    ("kind", "spec", "min_member", "is_told"),
    [
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 3}, "3", True),
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 3}, "1", False),
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 1}, "3", False),
        ("StatefulSet", {"podManagementPolicy": "Parallel", "replicas": 3}, "3", False),
        ("Deployment", {"replicas": 3}, "3", False),
    ],
)
def test_author_is_told_of_a_gang_whose_pods_are_created_one_after_the_other(
    kind: str, spec: Document, min_member: str, *, is_told: bool
) -> None:
    made = app(kind)
    made["spec"] |= spec
    notes = {names.ANNOTATION_MIN_MEMBER: min_member}
    made["spec"]["template"]["metadata"]["annotations"] = notes
    warned = decision_on(made).warnings
    assert [("set podManagementPolicy: Parallel" in each) for each in warned] == [True] * is_told


@pytest.mark.parametrize("made", [app(resources={}), app("StatefulSet", {}), job(resources={})])
def test_word_that_is_not_on_the_pod_template_is_reported(made: Document) -> None:
    made = copy.deepcopy(made)
    made["metadata"]["annotations"] = {"gpu-fraction": "0.5", "example.com/other": "x"}
    (warning,) = decision_on(made).warnings
    assert warning == (
        f"annotation gpu-fraction has no effect on a {made['kind']}: Ballast reads it on pods;"
        " write it into spec.template.metadata.annotations"
    )
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    assert decision_on(made).warnings == ()


def in_document(kind: str, *path: str | int, **more: Any) -> Document:
    """An object of this kind with a pod template without GPUs at this path of its spec."""
    inner: Any = template(resources={})
    for key in reversed(path):
        inner = [inner] if key == 0 else {key: inner}
    meta = {"name": "train", "namespace": "team-a"}
    return {"apiVersion": "a/v1", "kind": kind, "metadata": meta, "spec": inner | more}


#: Kind -> where its pod template is.
PATHS: dict[str, tuple[str | int, ...]] = {
    "Deployment": ("template",),
    "Job": ("template",),
    "CronJob": ("jobTemplate", "spec", "template"),
    "JobSet": ("replicatedJobs", 0, "template", "spec", "template"),
    "LeaderWorkerSet": ("leaderWorkerTemplate", "workerTemplate"),
    "PyTorchJob": ("pytorchReplicaSpecs", "Worker", "template"),
    "RayCluster": ("workerGroupSpecs", 0, "template"),
    "RayJob": ("rayClusterSpec", "workerGroupSpecs", 0, "template"),
    "ScaledJob": ("jobTargetRef", "template"),
}


@pytest.mark.parametrize("kind", PATHS)
def test_author_is_told_of_a_misspelt_word_in_any_pod_template(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    found = made["spec"]
    for key in PATHS[kind]:
        found = found[key]
    found["metadata"] = {"annotations": {"gpu_fraction": "0.5"}, "labels": {"gpu-memory": "8192"}}
    assert decision_on(made).warnings == (
        "annotation gpu_fraction is not read; did you mean the annotation gpu-fraction?",
        "label gpu-memory is not read: Ballast reads gpu-memory as an annotation",
    )


@pytest.mark.parametrize("kind", PATHS)
def test_author_is_told_where_a_word_of_the_object_belongs(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    made["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(made).warnings
    path = "spec." + ".".join(map(str, PATHS[kind])).replace(".0", "[0]")
    assert warning == (
        f"annotation gpu-fraction has no effect on a {kind}: Ballast reads it on pods; write it"
        f" into {path}.metadata.annotations"
    )


def test_word_that_is_misspelt_is_reported_when_it_is_new() -> None:
    before, after = app(resources={}), app(resources={})
    after["spec"]["template"]["metadata"]["annotations"] = {"gpu_fraction": "0.5"}
    assert decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert decision_on(after, operation="UPDATE", oldObject=after).warnings == ()


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "RayCluster"])
def test_author_is_told_that_the_pods_of_any_kind_will_be_refused(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    found = made["spec"]
    for key in PATHS[kind]:
        found = found[key]
    found["metadata"] = {"annotations": {"gpu-fraction": "50%"}}
    (warning,) = decision_on(made).warnings
    assert warning.startswith("its pods will be refused: ")


def test_word_that_is_added_to_an_app_instead_of_its_template_is_reported_once() -> None:
    before, after = app(), app()
    after["metadata"]["annotations"] = {names.ANNOTATION_FLOOR: "2"}
    (warning,) = decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert "ballast.dev/floor has no effect on a Deployment" in warning
    scaled = copy.deepcopy(after)
    scaled["spec"]["replicas"] = 3
    assert decision_on(scaled, operation="UPDATE", oldObject=after).warnings == ()


def test_label_that_is_not_on_the_pod_template_is_reported() -> None:
    made = app()
    made["metadata"]["labels"] = {names.LABEL_WORKLOAD_KIND: "interactive", "app": "llm"}
    (warning,) = decision_on(made).warnings
    assert "write it into spec.template.metadata.labels" in warning


@pytest.mark.parametrize("containers", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("variable", "n_warnings"),
    [({"value": "all"}, 1), ({"value": "void"}, 0), ({"value": "none"}, 0), ({}, 1)],
)
def test_author_is_told_of_cards_by_environment(
    variable: Document, n_warnings: int, containers: str
) -> None:
    made = app()
    spec = made["spec"]["template"]["spec"]
    container = {**spec["containers"][0], "name": "loud", "resources": {}}
    spec[containers] = [*spec.get(containers, ()), container]
    container["env"] = [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES"} | variable]
    warned = decision_on(made).warnings
    assert len(warned) == n_warnings
    assert all("container loud sets NVIDIA_VISIBLE_DEVICES" in each for each in warned)


def test_author_is_not_told_that_a_minimum_has_no_effect_where_the_owner_names_the_group() -> None:
    made = job(completionMode="Indexed", parallelism=4, completions=4)
    notes = {names.ANNOTATION_MIN_MEMBER: "1"}
    made["spec"]["template"]["metadata"]["annotations"] = notes
    assert decision_on(made).warnings == ()

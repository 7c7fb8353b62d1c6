"""Warnings to authors of jobs of the training operator and the MPI operator."""

from typing import Any

import pytest

from extender.api import names
from tests.support.admission import Document
from tests.unit.webhooks.authored import DEADLINE, GPU, REPLICAS, mpi_job, replicated, warnings

ELASTIC: dict[str, Any] = {"elasticPolicy": {"minReplicas": 1}}
LEAST: dict[str, Any] = {"schedulingPolicy": {"minAvailable": 1}}


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


@pytest.mark.parametrize("kind", REPLICAS)
def test_every_kind_of_the_training_operator_is_warned_of(kind: str) -> None:
    said = warnings(replicated(kind, "Never", runPolicy=DEADLINE))
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

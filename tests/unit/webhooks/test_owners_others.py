"""Kinds that labels describe completely, and unknown kinds."""

import pytest

from tests.support.admission import pod
from tests.support.owners import Document, child, origin_of, unread
from webhooks.owners.origin import NO_OWNER, Origin


@pytest.mark.parametrize(
    ("owner", "labels", "expected"),
    [
        pytest.param(
            unread("v1", "Pod", "etl-driver"),
            {
                "spark-role": "executor",
                "spark-exec-id": "3",
                "spark-app-selector": "spark-0a1b2c",
                "sparkoperator.k8s.io/app-name": "etl",
            },
            Origin(group="sparkapplication-etl", is_alone=True),
            id="spark executor",
        ),
        pytest.param(
            unread("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl"),
            {"spark-role": "driver", "sparkoperator.k8s.io/app-name": "etl"},
            Origin(group="sparkapplication-etl", is_alone=True),
            id="spark driver",
        ),
        pytest.param(
            unread("v1", "Pod", "etl-driver"),
            {"spark-role": "executor", "spark-app-selector": "spark-0a1b2c"},
            Origin(group="sparkapplication-spark-0a1b2c", is_alone=True),
            id="spark without an operator",
        ),
        pytest.param(
            unread("argoproj.io/v1alpha1", "Workflow", "nightly-x7k2p"),
            {"workflows.argoproj.io/workflow": "nightly-x7k2p"},
            Origin(group="workflow-nightly-x7k2p", is_alone=True),
            id="argo workflow",
        ),
        pytest.param(
            unread("apps/v1", "ReplicaSet", "chat-00003-deployment-6c9b7d"),
            {
                "serving.knative.dev/service": "chat",
                "serving.knative.dev/revision": "chat-00003",
                "pod-template-hash": "6c9b7d",
            },
            Origin(work="inference", group="service-chat", is_alone=True),
            id="knative service",
        ),
        pytest.param(
            unread("apps/v1", "ReplicaSet", "bert-predictor-6c9b7d"),
            {"serving.kserve.io/inferenceservice": "bert", "pod-template-hash": "6c9b7d"},
            Origin(work="inference", group="inferenceservice-bert", is_alone=True),
            id="kserve",
        ),
    ],
)
def test_kind_follows_from_labels_alone(
    owner: Document, labels: dict[str, str], expected: Origin
) -> None:
    assert origin_of(child(owner, labels)) == expected


def test_pods_of_an_unknown_kind_are_one_group_for_each_owner() -> None:
    first = unread("example.com/v1", "Simulation", "galaxy")
    second = unread("example.com/v1", "Simulation", "nebula")
    assert origin_of(child(first)) == Origin(group="simulation-galaxy")
    assert origin_of(child(second)) == Origin(group="simulation-nebula")


def test_pod_that_nobody_made_has_no_group() -> None:
    assert origin_of(pod().asking("nvidia.com/gpu", "1")) == NO_OWNER


def test_owner_that_is_no_controller_does_not_count() -> None:
    made = child(unread("example.com/v1", "Simulation", "galaxy"))
    del made.body["metadata"]["ownerReferences"][0]["controller"]
    assert origin_of(made) == NO_OWNER

"""Changes to a pod when it is created."""

from typing import Any

import pytest

from extender.api import names
from tests.support.admission import (
    PodDocument,
    decision_on,
    pod,
    refusal,
    review_body,
    stored,
    usual_index,
)
from webhooks.mutate import decide
from webhooks.review import read

GATE = {"name": names.GATE}


HALF = {"gpu-fraction": "0.5"}


def milli_of(document: dict[str, Any], container: int = 0, field: str = "containers") -> str:
    resources = document["spec"][field][container]["resources"]
    assert resources["requests"][names.GPU_MILLI] == resources["limits"][names.GPU_MILLI]
    milli: str = resources["requests"][names.GPU_MILLI]
    return milli


def test_half_a_card_becomes_a_gated_pod_of_its_project() -> None:
    after = stored(pod().noted(HALF))
    assert after["metadata"]["labels"] == {
        names.LABEL_PROJECT: "vision",
        names.LABEL_DEPARTMENT: "research",
        names.LABEL_WORKLOAD_KIND: "training",
        names.LABEL_PREEMPTIBILITY: "preemptible",
    }
    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["schedulerName"] == "ballast-scheduler"
    assert after["spec"]["priorityClassName"] == "ballast-training"
    assert milli_of(after) == "500"


@pytest.mark.parametrize(
    ("built", "request_milli", "limit_milli"),
    [
        (pod().noted(HALF), "500", "1000"),
        (pod().noted({"gpu-memory": "8192"}), "0", "1000"),
        (pod().asking("nvidia.com/gpu", "1"), "1000", "1000"),
        (pod().noted(HALF | {"gpu-compute-limit": "0.75"}), "500", "750"),
    ],
)
def test_compute_is_annotated_in_milli(
    built: PodDocument, request_milli: str, limit_milli: str
) -> None:
    notes = stored(built)["metadata"]["annotations"]
    assert notes[names.ANNOTATION_COMPUTE_REQUEST] == request_milli
    assert notes[names.ANNOTATION_COMPUTE_LIMIT] == limit_milli


def test_memory_request_asks_for_one_milli() -> None:
    assert milli_of(stored(pod().noted({"gpu-memory": "8192"}))) == "1"


def test_several_devices_ask_for_the_sum() -> None:
    assert milli_of(stored(pod().noted(HALF | {"gpu-fraction-num-devices": "3"}))) == "1500"


def test_whole_cards_ask_where_they_were_asked_for() -> None:
    built = pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpu", "2", container=2)
    init = {"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    after = stored(built.with_spec(initContainers=[init]))
    assert milli_of(after, 0) == "1000"
    assert milli_of(after, 2) == "2000"
    assert milli_of(after, 0, "initContainers") == "1000"
    assert names.GPU_MILLI not in after["spec"]["containers"][1]["resources"].get("requests", {})


def test_fraction_is_asked_for_by_the_container_that_is_named() -> None:
    notes = HALF | {"gpu-fraction-container-name": "c1"}
    after = stored(pod().asking("cpu", "1", container=1).noted(notes))
    assert milli_of(after, 1) == "500"
    assert after["spec"]["containers"][0]["resources"] == {}


def test_container_without_resources_gets_them() -> None:
    built = pod().noted(HALF).with_spec(containers=[{"name": "main"}])
    assert milli_of(stored(built)) == "500"


def test_zero_milli_does_not_pass_for_a_request() -> None:
    assert milli_of(stored(pod().noted(HALF).asking(names.GPU_MILLI, "0"))) == "500"


#: JupyterHub sets it on the pods of its users.
JUPYTERHUB = "hub.jupyter.org/username"


@pytest.mark.parametrize(
    ("labels", "spec", "kind", "priority_class", "preemptibility"),
    [
        ({names.LABEL_WORKLOAD_KIND: "build"}, {}, "build", "ballast-build", "non-preemptible"),
        (
            {names.LABEL_WORKLOAD_KIND: "interactive"},
            {},
            "interactive",
            "ballast-interactive",
            "preemptible",
        ),
        (
            {},
            {"priorityClassName": "ballast-inference", "priority": 125},
            "inference",
            "ballast-inference",
            "non-preemptible",
        ),
        (
            {},
            {"priorityClassName": "interactive-preemptible", "priority": 75},
            "interactive",
            "interactive-preemptible",
            "preemptible",
        ),
        ({JUPYTERHUB: "ada"}, {}, "interactive", "ballast-interactive", "preemptible"),
        (
            {JUPYTERHUB: "ada", names.LABEL_WORKLOAD_KIND: "training"},
            {},
            "training",
            "ballast-training",
            "preemptible",
        ),
        ({JUPYTERHUB: "ada"}, {"priorityClassName": "mine"}, "interactive", "mine", "preemptible"),
        ({}, {"priorityClassName": "build", "priority": 7}, "training", "build", "preemptible"),
        ({}, {"priorityClassName": "mine", "priority": 7}, "training", "mine", "preemptible"),
        (
            {"kai.scheduler/preemptibility": "non-preemptible"},
            {},
            "training",
            "ballast-training",
            "non-preemptible",
        ),
    ],
)
def test_kind_class_and_preemptibility(
    labels: dict[str, str],
    spec: dict[str, Any],
    kind: str,
    priority_class: str,
    preemptibility: str,
) -> None:
    after = stored(pod().noted(HALF).labelled(labels).with_spec(**spec))
    assert after["metadata"]["labels"][names.LABEL_WORKLOAD_KIND] == kind
    assert after["metadata"]["labels"][names.LABEL_PREEMPTIBILITY] == preemptibility
    assert after["spec"]["priorityClassName"] == priority_class


def test_number_of_the_former_class_goes_with_it() -> None:
    after = stored(pod().noted(HALF))
    assert "priority" not in after["spec"]
    assert "preemptionPolicy" not in after["spec"]


@pytest.mark.parametrize(
    "built",
    [
        pod().noted(HALF),
        pod().asking("nvidia.com/gpu", "1"),
        pod().asking("nvidia.com/mig-1g.5gb", "1"),
    ],
)
def test_gpu_pod_tolerates_the_taint_of_gpu_nodes(built: PodDocument) -> None:
    """As the API server's plugin ExtendedResourceToleration does for nvidia.com/gpu alone."""
    stated = {"key": "example.com/team", "operator": "Exists"}
    gpu_nodes = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    once = stored(built.with_spec(tolerations=[stated]))
    assert once["spec"]["tolerations"] == [stated, gpu_nodes]
    built.body.update(once)
    assert stored(built)["spec"]["tolerations"] == [stated, gpu_nodes]


@pytest.mark.parametrize(
    "stated",
    [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ],
)
def test_tolerations_that_cover_the_taint_stay_as_they_are(stated: dict[str, str]) -> None:
    after = stored(pod().noted(HALF).with_spec(tolerations=[stated]))
    assert after["spec"]["tolerations"] == [stated]


@pytest.mark.parametrize(
    "more", [{"value": "present"}, {"effect": "NoExecute", "operator": "Exists"}]
)
def test_toleration_of_one_value_or_another_effect_does_not_cover_the_taint(
    more: dict[str, str],
) -> None:
    stated = {"key": "nvidia.com/gpu"} | more
    after = stored(pod().noted(HALF).with_spec(tolerations=[stated]))
    assert len(after["spec"]["tolerations"]) == 2


def test_named_class_is_kept_with_its_number() -> None:
    after = stored(pod().noted(HALF).with_spec(priorityClassName="ballast-build", priority=100))
    assert (after["spec"]["priorityClassName"], after["spec"]["priority"]) == ("ballast-build", 100)


@pytest.mark.parametrize(
    "key",
    [
        "scheduling.x-k8s.io/pod-group",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/name",
    ],
)
def test_group_is_read_from_other_schedulers_labels(key: str) -> None:
    labels = stored(pod().noted(HALF).labelled({key: "gang-1"}))["metadata"]["labels"]
    assert labels[names.LABEL_POD_GROUP] == "gang-1"


def test_preemptibility_of_a_groups_pod_is_left_to_the_group() -> None:
    after = stored(pod().noted(HALF).labelled({names.LABEL_POD_GROUP: "gang-1"}))
    assert names.LABEL_PREEMPTIBILITY not in after["metadata"]["labels"]


@pytest.mark.parametrize(
    "built",
    [
        pod(),
        pod().asking("cpu", "1").labelled({"app": "x"}).noted({"note": "y"}),
        pod().asking("nvidia.com/gpu", "0"),
        pod().with_spec(schedulingGates=[{"name": "example.com/theirs"}]),
        pod().noted(HALF | {"kubernetes.io/config.mirror": "h"}),
        pod().noted(HALF).with_spec(nodeName="node-1"),
        pod().noted({names.ANNOTATION_CARDS: "0:1000:1"}).with_spec(nodeName="node-1"),
        pod(namespace="elsewhere"),
        pod(namespace="elsewhere").labelled({"kai.scheduler/queue": "theirs"}),
        pod(namespace="elsewhere").with_spec(schedulerName="ballast-scheduler"),
    ],
)
def test_pod_is_left_alone(built: PodDocument) -> None:
    decision = decision_on(built)
    assert decision.is_allowed
    assert decision.ops == ()
    assert decision.warnings == ()


def test_pod_of_a_daemon_set_is_labelled_but_never_gated() -> None:
    after = stored(pod().noted(HALF).owned_by("DaemonSet"))
    assert "schedulingGates" not in after["spec"]
    assert after["spec"]["schedulerName"] == "ballast-scheduler"
    assert milli_of(after) == "500"


def test_pod_of_a_daemon_set_may_have_no_mig_instance() -> None:
    built = pod().asking("nvidia.com/mig-1g.10gb", "1")
    assert stored(built)["spec"]["schedulingGates"] == [GATE]
    said = refusal(built.owned_by("DaemonSet"))
    assert "a pod of a DaemonSet can't have a MIG instance" in said


def test_gates_of_others_stay() -> None:
    theirs = {"name": "kueue.x-k8s.io/admission"}
    after = stored(pod().noted(HALF).with_spec(schedulingGates=[theirs]))
    assert after["spec"]["schedulingGates"] == [theirs, GATE]


def test_pod_without_gpus_that_names_its_project_is_labelled_only() -> None:
    after = stored(pod().labelled({"runai/queue": "vision"}))
    assert after["metadata"]["labels"][names.LABEL_PROJECT] == "vision"
    assert after["spec"] == pod().body["spec"]


def test_gpu_pod_without_a_project_is_left_alone_with_a_warning() -> None:
    decision = decision_on(pod(namespace="elsewhere").asking("nvidia.com/gpu", "1"))
    assert decision.is_allowed
    assert decision.ops == ()
    assert "belongs to no project" in decision.warnings[0]


@pytest.mark.parametrize("key", ["gpu-fraction", "ballast.dev/gpu-fraction"])
@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_share_without_a_project_is_refused_where_no_other_scheduler_reads_it(
    key: str, scheduler: str
) -> None:
    built = pod(namespace="elsewhere").noted({key: "0.5"}).with_spec(schedulerName=scheduler)
    assert f"annotation {key} would have no effect, and the pod no GPU" in refusal(built)
    others = pod(namespace="elsewhere").noted({key: "0.5"}).with_spec(schedulerName="kai-scheduler")
    assert decision_on(others).is_allowed


def test_gpu_pod_of_a_project_may_not_name_another_scheduler() -> None:
    built = pod().asking("nvidia.com/gpu", "1").with_spec(schedulerName="volcano")
    assert "schedulerName: 'volcano' may not allocate GPUs in namespace team-a" in refusal(built)


@pytest.mark.parametrize(
    "usual", ["", "default-scheduler", "gke.io/optimize-utilization-scheduler"]
)
def test_gpu_pod_that_names_no_scheduler_of_its_own_is_ours(usual: str) -> None:
    after = stored(pod().asking("nvidia.com/gpu", "1").with_spec(schedulerName=usual))
    assert after["spec"]["schedulerName"] == "ballast-scheduler"


def test_pod_without_gpus_keeps_its_scheduler_and_its_author_is_told() -> None:
    built = pod().labelled({names.LABEL_PROJECT: "vision"}).with_spec(schedulerName="volcano")
    assert stored(built)["spec"]["schedulerName"] == "volcano"
    assert "leaves it to the scheduler volcano" in decision_on(built).warnings[0]


def test_word_with_our_prefix_is_read_like_the_bare_one() -> None:
    assert milli_of(stored(pod().noted({names.ANNOTATION_FRACTION: "0.5"}))) == "500"
    assert milli_of(stored(pod().noted({names.ANNOTATION_MEMORY: "8192"}))) == "1"


def test_both_names_of_a_word_have_to_agree() -> None:
    assert stored(pod().noted(HALF | {names.ANNOTATION_FRACTION: "0.5"}))
    assert "differ; keep one" in refusal(pod().noted(HALF | {names.ANNOTATION_FRACTION: "0.25"}))


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"gpu-memory": "8Gi"}, 'the unit is MiB: for 8 GiB write "8192"'),
        ({"gpu-memory": "10Gi"}, 'the unit is MiB: for 10 GiB write "10240"'),
        ({"gpu-memory": "2.5Gi"}, 'the unit is MiB: for 2560 MiB write "2560"'),
        ({"gpu-memory": "ten"}, 'the unit is MiB: for 8 GiB write "8192"'),
        ({"gpu-memory": "0"}, 'the unit is MiB: for 8 GiB write "8192"'),
        (HALF | {names.ANNOTATION_CHECKPOINT: "30m"}, 'for 30 minutes write "1800"'),
        ({"gpu-fraction": "1"}, "a whole GPU is the resource nvidia.com/gpu: 1"),
    ],
)
def test_refusal_of_a_number_tells_its_unit(notes: dict[str, str], words: str) -> None:
    assert words in refusal(pod().noted(notes))


def test_refusal_of_other_words_tells_what_is_accepted() -> None:
    hold, weight = names.ANNOTATION_HOLD, names.ANNOTATION_WEIGHT
    assert "'yes' is not one of true, false" in refusal(pod().noted(HALF | {hold: "yes"}))
    assert "from 1 to 1000" in refusal(pod().noted(HALF | {weight: "1.5"}))
    assert "from 1 to 1000" in refusal(pod().noted(HALF | {weight: "5000"}))
    pools = {names.ANNOTATION_NODE_POOLS: "a100, default"}
    assert 'such as "a100,default"' in refusal(pod().noted(HALF | pools))
    named = pod().noted(HALF).labelled({names.LABEL_SUB_GROUP: "Bad_Name"})
    assert "ballast.dev/sub-group: 'Bad_Name' is not a name" in refusal(named)


def test_namespace_is_the_requests_where_the_object_has_none() -> None:
    built = pod().noted(HALF)
    del built.body["metadata"]["namespace"]
    built.body["metadata"] |= {"generateName": "train-"}
    del built.body["metadata"]["name"]
    assert stored(built)["spec"]["schedulingGates"] == [GATE]
    assert "team-a/train-:" in refusal(built.noted({"gpu-fraction": "x"}))


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_only_creation_is_judged(operation: str) -> None:
    request = read(review_body(pod().noted({"gpu-fraction": "x"}).body, operation=operation))
    assert decide(request, usual_index()).ops == ()
    assert decide(request, usual_index()).is_allowed


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"annotations": {"gpu-fraction": None}}},
        {"metadata": {"annotations": {"gpu-fraction": 0.5}}},
        {"metadata": {"annotations": ["gpu-fraction"]}},
        {"metadata": {}, "spec": {"containers": {}}},
        {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": 0.5}}}]}},
        {"metadata": {"labels": "x"}, "spec": None},
    ],
)
def test_object_that_is_no_pod_is_refused_with_what_is_wrong(body: dict[str, Any]) -> None:
    decision = decide(read(review_body(body)), usual_index())
    assert not decision.is_allowed
    assert decision.code == 400
    assert "object is not a Pod" in decision.message

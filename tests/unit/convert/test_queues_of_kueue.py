"""ClusterQueues, cohorts and flavors of Kueue as projects, departments and node pools."""

import pytest

from extender.api import names
from extender.convert import kueue
from extender.convert.fields import Manifest
from tests.unit.convert.accepted import assert_accepted, lost, objects, of_kind
from tests.unit.convert.queues_of_peers import KUEUE


def test_kueue_cluster_queue_becomes_project_flavor_pool_and_cohort_department() -> None:
    done = kueue.convert(objects(KUEUE))
    assert_accepted(done)
    project = of_kind(done, "GpuProject")["vision"]["spec"]
    assert project["department"] == "research"
    assert project["namespaces"] == ["team-v"]
    (pool,) = project["nodePools"]
    assert pool["name"] == "a100"
    assert pool["gpu"] == {"quota": 8, "limit": 12, "overQuotaWeight": 2}
    assert pool["cpu"] == {"quota": 9}
    assert of_kind(done, "GpuDepartment")["research"]["spec"]["nodePools"] == [
        {"name": "a100", "gpu": {"quota": 8, "limit": 8}}
    ]
    selector = of_kind(done, "GpuNodePool")["a100"]["spec"]["nodeSelector"]
    assert selector == {"nvidia.com/gpu.product": "A100"}
    job = of_kind(done, "Job")["train"]
    assert job["metadata"]["labels"] == {"mine": "x"}
    assert "suspend" not in job["spec"]
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "high"
    high = of_kind(done, "PriorityClass")["high"]
    assert (high["value"], high.get("preemptionPolicy")) == (90, None)
    told = lost(done)
    for word in ("lendingLimit=2", "pods", "StrictFIFO", "spec.preemption", "spec.nodeTaints"):
        assert any(word in each for each in told), (word, told)


def cluster_queue(name: str, cohort: str, quota: int, resource: str = "nvidia.com/gpu") -> str:
    """A ClusterQueue with a weight and a quota in one flavor."""
    return f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohortName: '{cohort}'
  fairSharing: {{weight: 3}}
  resourceGroups:
  - flavors: [{{name: a100, resources: [{{name: {resource}, nominalQuota: {quota}}}]}}]
"""


def test_kueue_queue_without_a_cohort_borrows_nothing() -> None:
    done = kueue.convert(objects(cluster_queue("alone", "", 8)))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["alone"]["spec"]["nodePools"]
    assert pool["gpu"] == {"quota": 8, "limit": 8, "overQuotaWeight": 3}


def test_kueue_cohort_is_limited_to_what_its_queues_have() -> None:
    text = cluster_queue("one", "all", 8) + cluster_queue("two", "low", 4)
    low = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: low},"
    done = kueue.convert(objects(f"{text}---\n{low} spec: {{parentName: all}}}}"))
    assert_accepted(done)
    assert of_kind(done, "GpuDepartment")["all"]["spec"]["nodePools"] == [
        {"name": "a100", "gpu": {"quota": 12, "limit": 12}}
    ]
    project = of_kind(done, "GpuProject")["two"]["spec"]["nodePools"][0]
    assert project["gpu"] == {"quota": 4, "overQuotaWeight": 3}


def test_kueue_weight_of_a_queue_without_gpus_is_reported() -> None:
    done = kueue.convert(objects(cluster_queue("cpus", "all", 8, "cpu")))
    assert_accepted(done)
    assert any("fairSharing.weight=3" in each for each in lost(done))


def test_kueue_namespace_of_two_queues_is_reported() -> None:
    local = "\n".join(
        "---\n{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata:"
        f" {{name: {queue}, namespace: team}}, spec: {{clusterQueue: {queue}}}}}"
        for queue in ("one", "two")
    )
    text = cluster_queue("one", "all", 8) + cluster_queue("two", "all", 4)
    done = kueue.convert(objects(text + local))
    assert_accepted(done)
    projects = of_kind(done, "GpuProject")
    assert projects["one"]["spec"]["namespaces"] == ["team"]
    assert "namespaces" not in projects["two"]["spec"]
    assert any(each.startswith("ClusterQueue two: namespace team: ") for each in lost(done))


def test_kueue_cron_job_makes_jobs_that_are_not_suspended() -> None:
    text = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: team, labels: {kueue.x-k8s.io/priority-class: high}}
spec:
  schedule: "0 1 * * *"
  suspend: true
  jobTemplate:
    spec:
      suspend: true
      template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
"""
    done = kueue.convert(objects(text))
    (made,) = done.objects
    assert made["spec"]["suspend"] is True
    assert "suspend" not in made["spec"]["jobTemplate"]["spec"]
    assert any("priority-class=high" in each for each in lost(done))


def test_namespace_that_a_local_queue_does_not_state_is_reported() -> None:
    text = f"""{cluster_queue("vision", "", 8)}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: local}}
spec: {{clusterQueue: vision}}
"""
    done = kueue.convert(objects(text))
    assert_accepted(done)
    assert "namespaces" not in of_kind(done, "GpuProject")["vision"]["spec"]
    assert any("namespaces: none is known" in each for each in lost(done))


def test_pods_of_kueues_group_become_a_gang_of_that_size() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: q, kueue.x-k8s.io/pod-group-name: pair}
  annotations: {kueue.x-k8s.io/pod-group-total-count: "2"}
spec: {containers: [{name: c, image: i}]}
"""
    (pod,) = kueue.convert(objects(text)).objects
    assert pod["metadata"]["labels"] == {names.LABEL_POD_GROUP: "pair"}
    assert pod["metadata"]["annotations"] == {names.ANNOTATION_MIN_MEMBER: "2"}


@pytest.mark.parametrize(
    "words",
    [
        {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "5"}},
        {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}},
    ],
)
def test_word_of_kueue_on_a_job_without_a_counterpart_is_reported(words: Manifest) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": "j", "namespace": "team", **words}
    job: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    (told,) = lost(kueue.convert([job | {"spec": {"template": template}}]))
    ((key, value),) = next(iter(words.values())).items()
    assert told == f"Job team/j: {key}={value}: there is no counterpart"


def test_kueue_quotas_of_different_suffixes_are_summed() -> None:
    cpu = "{name: cpu, nominalQuota: 1500m, borrowingLimit: 2}"
    memory = "{name: memory, nominalQuota: 1Gi, borrowingLimit: 512Mi}"
    both = f"{cpu}\n      - {memory}"
    text = KUEUE.replace("{name: cpu, nominalQuota: 9}", both)
    done = kueue.convert(objects(text))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["vision"]["spec"]["nodePools"]
    assert (pool["cpu"]["limit"], pool["memory"]["limit"]) == ("3500m", "1536Mi")


@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/gpu"])
def test_kueue_quota_that_is_no_quantity_is_named_with_what_is_accepted(resource: str) -> None:
    before = "8, borrowing" if resource == "nvidia.com/gpu" else "9}"
    text = KUEUE.replace(f"nominalQuota: {before}", f"nominalQuota: 8GPU{before[1:]}")
    with pytest.raises(ValueError, match=rf"vision: flavor .*: {resource}.nominalQuota: .*such as"):
        kueue.convert(objects(text))

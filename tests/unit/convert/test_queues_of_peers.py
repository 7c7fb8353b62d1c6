"""Queues of KAI, Kueue, Run:ai, Volcano and Slurm as departments and projects."""

import re
from typing import Any

import pytest

from extender.convert import kai, kueue, runai, slurm, volcano
from tests.unit.convert.accepted import assert_accepted, lost, objects, of_kind

KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: research, uid: u1, generation: 3}
spec:
  displayName: Research
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 24, limit: 32, overQuotaWeight: 2}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
status: {allocated: {}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: vision}
spec:
  parentQueue: research
  priority: 100
  reclaimMinRuntime: 1h30m
  resources:
    cpu: {quota: 64000, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 8.5, limit: -1, overQuotaWeight: 1}
    memory: {quota: 512000, limit: -1, overQuotaWeight: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-v, labels: {kai.scheduler/queue: vision}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""


def test_kai_queues_become_department_and_project() -> None:
    done = kai.convert(objects(KAI))
    assert_accepted(done)
    department = of_kind(done, "GpuDepartment")["research"]["spec"]["nodePools"]
    assert department == [{"name": "default", "gpu": {"quota": 24, "limit": 32}}]
    project = of_kind(done, "GpuProject")["vision"]["spec"]
    assert project["department"] == "research"
    assert project["namespaces"] == ["team-v"]
    assert project["minRuntime"] == {"reclaimSeconds": 5400}
    (pool,) = project["nodePools"]
    assert (pool["gpu"], pool["cpu"], pool["memory"]) == (
        {"quota": 8.5},
        {"quota": "64000m"},
        {"quota": "512000M"},
    )
    # The pod is Ballast's now, and its label is read as it is.
    assert "schedulerName" not in of_kind(done, "Pod")["p"]["spec"]
    assert [each.partition(": ")[2].partition(":")[0] for each in lost(done)] == [
        "spec.priority=100",
        "default.gpu.overQuotaWeight=2",
    ]


def test_level_between_department_and_project_is_left_out_and_reported() -> None:
    text = "\n---\n".join(
        f"{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {name}}},"
        f" spec: {{parentQueue: '{parent}', resources: {{gpu: {{quota: 4}}}}}}}}"
        for name, parent in (("top", ""), ("middle", "top"), ("leaf", "middle"))
    )
    done = kai.convert(objects(text))
    assert_accepted(done)
    assert of_kind(done, "GpuProject")["leaf"]["spec"]["department"] == "top"
    assert list(of_kind(done, "GpuDepartment")) == ["top"]
    assert any(each.startswith("Queue middle: its level") for each in lost(done))


def test_quota_of_any_number_is_reported_and_not_made_up() -> None:
    text = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec: {resources: {gpu: {quota: -1, limit: -1}}}
"""
    done = kai.convert(objects(text))
    assert_accepted(done)
    assert of_kind(done, "GpuProject")["q"]["spec"]["nodePools"][0]["gpu"] == {"quota": 0}
    assert any("quota=-1" in each for each in lost(done))


KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec:
  nodeLabels: {nvidia.com/gpu.product: A100}
  nodeTaints: [{key: gpu, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: research
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  fairSharing: {weight: "2"}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu, pods]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 9}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}
      - {name: pods, nominalQuota: 100}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: user-queue, namespace: team-v}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 90
description: soon
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team-v
  labels: {kueue.x-k8s.io/queue-name: user-queue, kueue.x-k8s.io/priority-class: high, mine: x}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


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
    assert of_kind(done, "PriorityClass")["high"]["value"] == 90
    told = lost(done)
    for word in ("lendingLimit=2", "pods", "StrictFIFO", "spec.preemption", "spec.nodeTaints"):
        assert any(word in each for each in told), (word, told)


RUNAI = """
departments:
- {id: "4", name: research, resources: [
    {nodePool: {id: 1, name: default}, gpu: {deserved: 16, limit: -1, overQuotaWeight: 2}}]}
---
projects:
- id: "22"
  name: vision
  parentId: "4"
  requestedNamespace: runai-vision
  schedulingRules: {trainingJobTimeLimitSeconds: 3600}
  defaultNodePools: [default]
  resources:
  - nodePool: {id: 1, name: default}
    gpu: {deserved: 8, limit: 12, overQuotaWeight: 3}
    cpu: {deserved: 1000, limit: null, overQuotaWeight: 1}
    memory: {deserved: 2048, limit: null, overQuotaWeight: 1, units: Mib}
"""


def test_runai_api_export_becomes_departments_and_projects() -> None:
    done = runai.convert(objects(RUNAI))
    assert_accepted(done)
    project = of_kind(done, "GpuProject")["vision"]["spec"]
    assert project["department"] == "research"
    assert project["namespaces"] == ["runai-vision"]
    assert project["defaultNodePools"] == ["default"]
    (pool,) = project["nodePools"]
    assert pool["gpu"] == {"quota": 8, "limit": 12, "overQuotaWeight": 3}
    assert (pool["cpu"], pool["memory"]) == ({"quota": "1000m"}, {"quota": "2048Mi"})
    told = lost(done)
    for word in ("trainingJobTimeLimitSeconds=3600", "default.gpu.overQuotaWeight=2"):
        assert any(word in each for each in told), (word, told)
    assert len(told) == 2


def test_runai_objects_of_older_clusters() -> None:
    text = """
apiVersion: run.ai/v2
kind: Project
metadata: {name: nlp}
spec: {deservedGpus: 4, department: research, nodeAffinityInteractive: [a]}
"""
    done = runai.convert(objects(text))
    assert_accepted(done)
    project = of_kind(done, "GpuProject")["nlp"]["spec"]
    assert project["namespaces"] == ["runai-nlp"]
    assert project["nodePools"][0]["gpu"] == {"quota": 4}
    assert any("nodeAffinityInteractive" in each for each in lost(done))


VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision}
spec:
  weight: 4
  reclaimable: true
  parent: root
  deserved: {nvidia.com/gpu: "8", cpu: "32"}
  capability: {nvidia.com/gpu: "12", memory: 512Gi}
  guarantee: {resource: {nvidia.com/gpu: "2"}}
"""


def test_volcano_queue_becomes_project() -> None:
    done = volcano.convert(objects(VOLCANO))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["vision"]["spec"]["nodePools"]
    assert pool["gpu"] == {"quota": 8, "limit": 12, "overQuotaWeight": 4}
    assert (pool["cpu"], pool["memory"]) == ({"quota": "32"}, {"limit": "512Gi"})
    told = lost(done)
    assert any("guarantee" in each for each in told)
    assert any("namespaces" in each for each in told)
    assert not any("reclaimable" in each for each in told)


DUMP = """
# To edit this file start with a cluster line
Cluster - 'gpu':Fairshare=1:QOS='normal'
Parent - 'root'
Account - 'physics':Description='physics':Organization='uni':Fairshare=30:GrpTRES=gres/gpu=16
Parent - 'physics'
Account - 'optics':Description='optics':Organization='uni':Fairshare=2:MaxJobs=10
Parent - 'optics'
User - 'ann':DefaultAccount='optics':Fairshare=5
"""
TABLE = """Account|User|Share|GrpTRES|ParentName|QOS
root||1|||normal
physics||30|gres/gpu=16|root|normal
optics||2||physics|
optics|ann|5|||"""


@pytest.mark.parametrize("text", [DUMP, TABLE])
def test_slurm_accounts_become_departments_and_projects(text: str) -> None:
    done = slurm.convert({"accounts": text})
    assert_accepted(done)
    department = of_kind(done, "GpuDepartment")["physics"]["spec"]["nodePools"][0]
    assert department["gpu"] == {"quota": 0, "limit": 16}
    project = of_kind(done, "GpuProject")["optics"]["spec"]
    assert project["department"] == "physics"
    assert project["nodePools"][0]["gpu"] == {"quota": 0, "overQuotaWeight": 2}
    assert any(each.startswith("user ann of account optics: fairshare=5") for each in lost(done))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("1.5h", 5400), ("500ms", 1), ("1m500ms", 61), ("1.1h", 3960), (None, 0)],
)
def test_durations_of_kai(text: str | None, seconds: int) -> None:
    assert kai._seconds(text) == seconds


def test_kai_limit_of_no_cpu_stays_one() -> None:
    text = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec: {resources: {gpu: {quota: 1}, cpu: {quota: 0, limit: 0}, memory: {quota: 0, limit: -1}}}
"""
    done = kai.convert(objects(text))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["q"]["spec"]["nodePools"]
    assert pool == {"name": "default", "gpu": {"quota": 1}, "cpu": {"limit": "0"}}


def test_quotas_of_gpus_are_quantities() -> None:
    text = KUEUE.replace("nominalQuota: 8, borrowing", "nominalQuota: 1k, borrowing")
    done = kueue.convert(objects(text))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["vision"]["spec"]["nodePools"]
    assert (pool["gpu"]["quota"], pool["gpu"]["limit"]) == (1000, 1004)
    done = volcano.convert(objects(VOLCANO.replace('nvidia.com/gpu: "12"', "nvidia.com/gpu: 1k")))
    assert_accepted(done)
    assert of_kind(done, "GpuProject")["vision"]["spec"]["nodePools"][0]["gpu"]["limit"] == 1000


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


def test_slurm_limits_of_models_cpu_and_memory() -> None:
    tres = "gres/gpu:a100=8,gres/gpu:tesla=4,cpu=64,mem=512G,node=3"
    text = f"Parent - 'root'\nAccount - 'lab':Fairshare=2:GrpTRES={tres}:MaxJobs=10\n"
    done = slurm.convert({"accounts": text})
    assert_accepted(done)
    assert of_kind(done, "GpuProject")["lab"]["spec"]["nodePools"] == [
        {
            "name": "default",
            "gpu": {"quota": 0, "overQuotaWeight": 2, "limit": 12},
            "cpu": {"limit": "64"},
            "memory": {"limit": "512Gi"},
        }
    ]
    told = lost(done)
    for word in ("gres/gpu:a100=8", "gres/gpu:tesla=4", "node=3", "maxjobs=10"):
        assert any(word in each for each in told), (word, told)


def test_weights_of_departments_have_no_effect_and_are_reported() -> None:
    for done in (kai.convert(objects(KAI)), slurm.convert({"accounts": DUMP})):
        for department in of_kind(done, "GpuDepartment").values():
            assert "overQuotaWeight" not in str(department)
        assert any("overQuotaWeight=" in each for each in lost(done))


@pytest.mark.parametrize(
    ("weight", "ours", "is_told"),
    [("0.5", 1, True), ("2.5", 3, True), ("7", 3, True), ("2", 2, False)],
)
def test_weights_of_runai_are_rounded_up_and_reported(
    weight: str, ours: int, is_told: bool
) -> None:
    done = runai.convert(objects(RUNAI.replace("Weight: 3", f"Weight: {weight}")))
    assert_accepted(done)
    (pool,) = of_kind(done, "GpuProject")["vision"]["spec"]["nodePools"]
    assert pool["gpu"]["overQuotaWeight"] == ours
    told = f"project vision: default.gpu.overQuotaWeight={weight}: "
    assert any(each.startswith(told) for each in lost(done)) == is_told


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


BAD_AMOUNTS = (
    (
        kai,
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q},"
        " spec: {resources: {gpu: {quota: lots}}}}",
        "Queue q: spec.resources.gpu.quota: 'lots' is not a number, such as 8 or 2.5",
    ),
    (
        kai,
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q},"
        " spec: {resources: {cpu: {limit: 8Gi}}}}",
        "Queue q: spec.resources.cpu.limit: '8Gi' is not a number, such as 8 or 2.5",
    ),
    (
        runai,
        "{name: p, requestedNamespace: p, resources: [{gpu: {deserved: .nan}}]}",
        "project p: default.gpu.deserved: nan is not a number, such as 8 or 2.5",
    ),
    (
        runai,
        "{apiVersion: run.ai/v2, kind: Project, metadata: {name: q}, spec: {deservedGpus: lots}}",
        "Project q: spec.deservedGpus: 'lots' is not a number, such as 8 or 2.5",
    ),
    (
        volcano,
        "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: q},"
        " spec: {capability: {cpu: lots}}}",
        "Queue q: spec.capability.cpu: 'lots' is not a Kubernetes quantity,"
        ' such as "500m", "2" or "8Gi"',
    ),
)


@pytest.mark.parametrize(("peer", "text", "sentence"), BAD_AMOUNTS)
def test_amount_that_is_none_is_reported_with_object_and_field(
    peer: Any, text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        peer.convert(objects(text))

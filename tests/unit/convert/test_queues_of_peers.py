"""Queues of KAI, Run:ai, Volcano and Slurm as departments and projects."""

import re
from typing import Any

import pytest

from extender.convert import kai, kueue, runai, slurm, volcano
from tests.unit.convert.accepted import assert_accepted, lost, objects, of_kind
from tests.unit.convert.queues_of_peers import KAI, KUEUE, RUNAI, VOLCANO


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
    assert kai.duration_s(text) == seconds


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

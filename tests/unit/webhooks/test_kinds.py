"""Refusals and warnings for our own kinds."""

import json
from typing import Any

import msgspec
import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import GpuDepartment, GpuNodePool, GpuProject, GpuTopology
from extender.api.names import API_VERSION
from tests.support.admission import index_of
from webhooks.kinds.judge import judge_kind
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, read

Body = dict[str, Any]
HOST = "kubernetes.io/hostname"


def gpu(name: str = "default", **figures: Any) -> Body:
    return {"name": name, "gpu": figures}


def elastic(**node: Any) -> Body:
    return {"maxNodes": 4, "node": {"gpus": 8, "cpu": 64, "memoryGiB": 512, **node}}


def review(
    kind: str, spec: Body, name: str = "vision", before: Body | None = None, operation: str = ""
) -> bytes:
    """The AdmissionReview of an object that is written in namespace `team-a`, or in none."""

    def document(of: Body) -> Body:
        meta = {"name": name, "uid": f"uid-{name}"}
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": of}

    request = {
        "uid": "1",
        "kind": {"group": "ballast.dev", "version": "v1alpha1", "kind": kind},
        "name": name,
        "namespace": "team-a" if kind == "GpuPodGroup" else "",
        "operation": operation or ("CREATE" if before is None else "UPDATE"),
        "object": document(spec) if operation != "DELETE" else None,
        "oldObject": document(before) if before is not None else None,
    }
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(whole).encode()


def known(**objects: Body) -> ProjectIndex:
    """What the webhook has seen: `Kind_name=spec`; names are written with _ for -."""
    index = index_of()
    for title, spec in objects.items():
        kind, _, name = title.partition("_")
        of = {
            "GpuDepartment": GpuDepartment,
            "GpuProject": GpuProject,
            "GpuNodePool": GpuNodePool,
            "GpuTopology": GpuTopology,
        }[kind]
        name = name.replace("_", "-")
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}
        index.deliver(Upserted(msgspec.convert(body, of)))
    return index


def decision(kind: str, spec: Body, index: ProjectIndex | None = None, **more: Any) -> Decision:
    return judge_kind(read(review(kind, spec, **more)), index or known())


WHOLE = known(
    GpuDepartment_research={"nodePools": [gpu(quota=8, limit=12)]},
    GpuProject_speech={"department": "research", "nodePools": [gpu(quota=6)], "namespaces": ["b"]},
    GpuProject_vision={
        "department": "research",
        "nodePools": [gpu(quota=2)],
        "namespaces": ["team-a"],
        "allowedPriorityClasses": ["ballast-training"],
    },
    GpuNodePool_a100={"nodeSelector": {"gpu": "a100"}},
    GpuNodePool_rest={},
    GpuTopology_rooms={"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]},
)
VISION = {"department": "research", "namespaces": ["team-a"]}

REFUSED: dict[str, tuple[str, Body, str]] = {
    "a quota above the department's limit": (
        "GpuProject",
        VISION | {"nodePools": [gpu(quota="12.5")]},
        "12.5 cannot be reached: the limit of department research is 12; give at most that",
    ),
    "a department's limit below a project's quota": (
        "GpuDepartment",
        {"nodePools": [gpu(quota=4, limit=5)]},
        "below the quota 6 of project speech",
    ),
    "a namespace of the cluster": (
        "GpuProject",
        VISION | {"namespaces": ["kube-system"]},
        "never belongs to a project",
    ),
    "a namespace of another project": (
        "GpuProject",
        VISION | {"namespaces": ["b"]},
        "b belongs to GpuProject speech already, and a namespace belongs to one project;"
        " use other namespaces, or remove it there first",
    ),
    "a name that no label holds": ("GpuProject", VISION, "cannot be the label of pods"),
    "a node label that no node has": (
        "GpuProject",
        VISION | {"nodeAffinity": [{"workloadKind": "training", "matchLabels": {"gpu": "A 100"}}]},
        "not a valid label value",
    ),
    "a selector that no node has": (
        "GpuNodePool",
        {"nodeSelector": {"a/b/c": "x"}},
        "not a valid label key",
    ),
    "a pool that an earlier one empties": (
        "GpuNodePool",
        {"nodeSelector": {"gpu": "a100", "zone": "1"}},
        "would have no node: a100 selects",
    ),
    "a pool that empties a later one": (
        "GpuNodePool",
        {"nodeSelector": {"gpu": "a100"}},
        "would have no node",
    ),
    "a second pool for the rest": ("GpuNodePool", {}, "only one may take all other nodes"),
    "new nodes that another pool would have": (
        "GpuNodePool",
        {"nodeSelector": {"zone": "1"}, "elastic": elastic(labels={"zone": "2"})},
        "so a new node is in no pool",
    ),
    "a topology without levels": ("GpuTopology", {}, "is empty; list labels of nodes"),
    "a level that is no label": (
        "GpuTopology",
        {"levels": [{"nodeLabel": "a b"}]},
        "not a valid label key",
    ),
    "a level below one node": (
        "GpuTopology",
        {"levels": [{"nodeLabel": HOST}, {"nodeLabel": "rack"}]},
        "nothing is narrower",
    ),
    "a region in a zone": (
        "GpuTopology",
        {
            "levels": [
                {"nodeLabel": "topology.kubernetes.io/zone"},
                {"nodeLabel": "topology.kubernetes.io/region"},
            ]
        },
        "a zone lies in",
    ),
    "sub-groups in a circle": (
        "GpuPodGroup",
        {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
        "a, b form a cycle of parents",
    ),
    "more sub-groups than there are": (
        "GpuPodGroup",
        {"minSubGroup": 3, "subGroups": [{"name": "a"}, {"name": "b"}]},
        "3 is more than the 2 there are",
    ),
    "a sub-group that no pod can name": (
        "GpuPodGroup",
        {"subGroups": [{"name": "A b"}]},
        "pods cannot name it",
    ),
    "a project of others": ("GpuPodGroup", {"project": "speech"}, "may not use project 'speech'"),
    "a class that the project does not allow": (
        "GpuPodGroup",
        {"priorityClassName": "ballast-inference"},
        "is not allowed in project vision; use ballast-training",
    ),
    "a run time of nothing": ("GpuPodGroup", {"expectedRunSeconds": 0}, "0 s is not a run time"),
}
NAMES = {
    "a name that no label holds": "vision.2",
    "a pool that an earlier one empties": "b",
    "a pool that empties a later one": "a",
    "a second pool for the rest": "others",
    "a department's limit below a project's quota": "research",
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_is_impossible_is_refused(title: str) -> None:
    kind, spec, words = REFUSED[title]
    found = decision(kind, spec, WHOLE, name=NAMES.get(title, "vision"))
    assert not found.is_allowed, found
    assert words in found.message
    assert found.code == 422


@pytest.mark.parametrize("title", REFUSED)
def test_refusal_says_what_is_accepted_and_gives_an_example(title: str) -> None:
    kind, spec, _ = REFUSED[title]
    message = decision(kind, spec, WHOLE, name=NAMES.get(title, "vision")).message
    assert message.startswith(f"InvalidRequest: {kind} ")
    assert "such as" in message or "; use " in message


ODD: dict[str, tuple[str, Body, str]] = {
    "a quota above the department's": (
        "GpuProject",
        VISION | {"nodePools": [gpu(quota=9)]},
        "is above the quota of department research, 8",
    ),
    "quotas that are more than the department's": (
        "GpuProject",
        VISION | {"nodePools": [gpu(quota=3)]},
        "have 9 GPUs of quota together, it has 8",
    ),
    "a department that is not there": (
        "GpuProject",
        VISION | {"department": "absent"},
        "'absent' does not exist (yet)",
    ),
    "a node pool that is not there": (
        "GpuProject",
        VISION | {"nodePools": [gpu("h200", quota=1)]},
        "there is no node pool h200 (yet)",
    ),
    "a misspelt department": (
        "GpuProject",
        VISION | {"department": "reserch"},
        "without quota; did you mean research?",
    ),
    "a misspelt node pool": (
        "GpuProject",
        VISION | {"nodePools": [gpu("a1000", quota=1)]},
        "have no effect; did you mean a100?",
    ),
    "no namespace": ("GpuProject", VISION | {"namespaces": []}, "no pod can belong to the project"),
    "a limit of nothing": (
        "GpuProject",
        VISION | {"nodePools": [gpu(limit=0)]},
        "the queue gets no GPU of this pool",
    ),
    "no quota and no weight": (
        "GpuProject",
        VISION | {"nodePools": [gpu(overQuotaWeight=0)]},
        "gets what no other queue asks for",
    ),
    "a default pool without quota": (
        "GpuProject",
        VISION | {"defaultNodePools": ["a100"]},
        "has no quota in a100",
    ),
    "a class above all": (
        "GpuProject",
        VISION | {"allowedPriorityClasses": ["system-node-critical"]},
        "outranks all other",
    ),
    "a class that does not exist": (
        "GpuProject",
        VISION | {"allowedPriorityClasses": ["ballast-training", "urgnet"]},
        "there is no priority class urgnet (yet)",
    ),
    "no class for pods that name none": (
        "GpuProject",
        VISION | {"allowedPriorityClasses": ["ballast-build"]},
        "a pod without a class and a kind gets ballast-training, which is not listed",
    ),
    "a department's quota below its projects'": (
        "GpuDepartment",
        {"nodePools": [gpu(quota=7)]},
        "they can't all have theirs at once",
    ),
    "an elastic pool that does not share fairly": (
        "GpuNodePool",
        {"nodeSelector": {"a": "1"}, "policy": "Priority", "elastic": elastic()},
        "has no effect under policy Priority",
    ),
    "pools that overlap": ("GpuNodePool", {"nodeSelector": {"zone": "1"}}, "names decide"),
    "a level of two topologies": (
        "GpuTopology",
        {"levels": [{"nodeLabel": "rack"}]},
        "rooms has rack too",
    ),
    "a project without node pools": (
        "GpuProject",
        VISION | {"nodePools": []},
        "is empty: the project has no quota",
    ),
    "memory in bytes that was meant in GiB": (
        "GpuProject",
        VISION | {"nodePools": [gpu() | {"memory": {"quota": 64}}]},
        "memory.quota: is 64 bytes: for 64 GiB write 64Gi",
    ),
    "an order that the policy does not read": (
        "GpuNodePool",
        {"nodeSelector": {"a": "1"}, "policy": "Priority", "jobOrder": "StrictFifo"},
        "spec.jobOrder: has no effect under policy Priority",
    ),
    "a pool that a group waits for": ("GpuPodGroup", {"nodePools": ["h200"]}, "(yet): it waits"),
    "a level that a group waits for": (
        "GpuPodGroup",
        {"topologyConstraint": {"requiredTopologyLevel": "row"}},
        "No GpuTopology has".lower(),
    ),
}


def test_a_default_pool_whose_autoscaler_reads_pods_is_warned_of() -> None:
    spec = {"elastic": elastic() | {"trigger": "UnschedulablePods"}}
    (warning,) = decision("GpuNodePool", spec, name="default").warnings
    assert "may add nodes of another pool" in warning


def test_a_priority_class_of_a_group_that_does_not_exist_is_warned_of() -> None:
    index = known(GpuProject_vision=VISION | {"allowedPriorityClasses": []})
    (warning,) = decision("GpuPodGroup", {"priorityClassName": "urgnet"}, index).warnings
    assert "there is no priority class 'urgnet' (yet)" in warning


@pytest.mark.parametrize("title", ODD)
def test_what_is_odd_is_warned_of(title: str) -> None:
    kind, spec, words = ODD[title]
    name = "research" if kind == "GpuDepartment" else "vision"
    found = decision(kind, spec, WHOLE, name=name)
    assert found.is_allowed, found.message
    assert any(words in text or words in text.lower() for text in found.warnings), found.warnings


@pytest.mark.parametrize(
    ("kind", "spec", "name"),
    [
        ("GpuDepartment", {"nodePools": [gpu(quota=8, limit=12)]}, "research"),
        ("GpuProject", VISION | {"nodePools": [gpu(quota=2)]}, "vision"),
        ("GpuNodePool", {"nodeSelector": {"gpu": "h100"}}, "h100"),
        ("GpuNodePool", {"nodeSelector": {"gpu": "a100"}}, "a100"),
        ("GpuTopology", {"levels": [{"nodeLabel": "row"}, {"nodeLabel": "hall"}]}, "halls"),
        (
            "GpuPodGroup",
            {"minMember": 4, "project": "vision", "priorityClassName": "ballast-training"},
            "g",
        ),
        ("GpuNode", {}, "n0"),
    ],
)
def test_what_is_right_is_stored_without_a_word(kind: str, spec: Body, name: str) -> None:
    found = decision(kind, spec, WHOLE, name=name)
    assert found.is_allowed, found.message
    assert found.warnings == ()


def test_object_whose_spec_stays_is_stored_whatever_the_rules_say() -> None:
    spec = VISION | {"nodePools": [gpu(quota=99)]}
    assert decision("GpuProject", spec, WHOLE, before=spec) == Decision(is_allowed=True)
    assert not decision("GpuProject", spec, WHOLE, before=VISION).is_allowed


def test_order_of_applying_never_matters() -> None:
    nothing = known()
    for kind, spec, name in (
        ("GpuProject", VISION | {"nodePools": [gpu("a100", quota=4)]}, "vision"),
        ("GpuPodGroup", {"project": "vision", "nodePools": ["a100"]}, "g"),
    ):
        assert decision(kind, spec, nothing, name=name).is_allowed


def test_successor_of_the_same_name_stays_when_its_forerunner_goes() -> None:
    index = known(GpuDepartment_research={})
    index.deliver(Removed(GpuDepartment, "uid-before", "", "research"))
    assert "research" in index.catalog.departments
    index.deliver(Removed(GpuDepartment, "uid-research", "", "research"))
    assert "research" not in index.catalog.departments


@pytest.mark.parametrize(
    "kind", ["GpuDepartment", "GpuProject", "GpuNodePool", "GpuTopology", "GpuPodGroup"]
)
def test_object_that_cannot_be_read_is_refused_with_what_is_wrong(kind: str) -> None:
    found = decision(kind, ["x"])  # type: ignore[arg-type]
    assert not found.is_allowed
    assert f"object is not a {kind}" in found.message


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"quota": 2, "gpuHoursPerMonth": 2000}, ""),
        ({"quota": 2, "gpuHoursPerMonth": 0}, "is 0: the project never borrows"),
        ({"quota": 2, "gpuHoursPerMonth": 1439}, "is below the 1440 GPU-hours that the quota is"),
    ],
)
def test_budget_that_the_quota_alone_uses_is_warned_of(figures: Body, told: str) -> None:
    spec = {"department": "research", "nodePools": [gpu(**figures)], "namespaces": ["team-a"]}
    found = decision("GpuProject", spec, WHOLE)
    assert found.is_allowed
    said = [each for each in found.warnings if "gpuHoursPerMonth" in each]
    assert [told in each for each in said] == ([True] if told else [])


def test_budget_of_a_department_is_warned_of() -> None:
    found = decision("GpuDepartment", {"nodePools": [gpu(quota=8, gpuHoursPerMonth=1)]})
    assert any("only projects have budgets" in each for each in found.warnings)


def test_namespaces_that_a_project_lists_no_more_are_warned_of() -> None:
    before: Body = {"department": "research", "namespaces": ["a", "b", "c"]}
    found = decision("GpuProject", before | {"namespaces": ["a"]}, WHOLE, before=before)
    assert found.is_allowed
    (text,) = [each for each in found.warnings if "until another GpuProject lists b, c" in each]
    assert "keep their GPUs" in text
    same = decision("GpuProject", before | {"department": "other"}, WHOLE, before=before)
    assert not [each for each in same.warnings if "until another" in each]

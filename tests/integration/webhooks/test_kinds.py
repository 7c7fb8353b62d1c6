"""Our kinds on the real API server: valid objects are stored, invalid ones refused."""

import json
from typing import Any

import msgspec
import pytest

from extender.api import crd, kinds
from extender.api.kinds import (
    CardShare,
    Device,
    GpuDepartment,
    GpuDepartmentSpec,
    GpuFigures,
    GpuNode,
    GpuNodePool,
    GpuNodePoolSpec,
    GpuNodePoolStatus,
    GpuNodeSpec,
    GpuNodeStatus,
    GpuPodGroup,
    GpuPodGroupSpec,
    GpuPodGroupStatus,
    GpuProject,
    GpuProjectSpec,
    GpuTopology,
    GpuTopologySpec,
    GpuUsage,
    GpuUsageSpec,
    HostFigures,
    HostUse,
    KindSelector,
    MinRuntime,
    MoveHold,
    OverQuota,
    PastUse,
    Placement,
    PoolFigures,
    PoolUse,
    QueueStatus,
    QueueSummary,
    Row,
    SubGroup,
    TimeBasedFairShare,
    TimeSlicing,
    TopologyConstraint,
    TopologyLevel,
    UsageLine,
)
from extender.api.objects import Condition, ObjectMeta
from extender.api.usage_kinds import HOURS
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Api

CONDITION = Condition(
    type="Ready",
    status="True",
    reason="Seen",
    message="m",
    observed_generation=1,
    last_transition_time="2026-01-01T00:00:00Z",
)
FIGURES = PoolFigures(
    name="default",
    gpu=GpuFigures(quota="2.5", limit=4, over_quota_weight=0),
    cpu=HostFigures(quota="500m", limit="32"),
    memory=HostFigures(quota="1.5Gi", limit="128Gi"),
    rank=-1,
)
USE = QueueStatus(
    state="OverQuota",
    gpu=QueueSummary(
        quota="2.5", fair_share="4", allocated="3", borrowed="0.5", waiting="6", pending_pods=6
    ),
    node_pools=[
        PoolUse(name="default", quota="2.5", allocated="3", past=PastUse(gpu=7, as_of=9)),
        PoolUse(name="other", cpu=HostUse(fair_share="500m")),
    ],
    conditions=[CONDITION],
)
META = ObjectMeta(name="sample")
NEAR = TopologyConstraint(
    topology="datacenter", required_topology_level="zone", preferred_topology_level="a.b/rack"
)

SAMPLES: tuple[msgspec.Struct, ...] = (
    GpuDepartment(metadata=META, spec=GpuDepartmentSpec(node_pools=[FIGURES]), status=USE),
    GpuProject(
        metadata=META,
        spec=GpuProjectSpec(
            department="research",
            namespaces=["team-a", "team-b"],
            node_pools=[FIGURES],
            default_node_pools=["default"],
            node_affinity=[KindSelector(workload_kind="build", match_labels={"a/b": "c"})],
            allowed_priority_classes=["ballast-training"],
            min_runtime=MinRuntime(reclaim_seconds=60, preempt_seconds=30),
        ),
        status=USE,
    ),
    GpuNodePool(
        metadata=META,
        spec=GpuNodePoolSpec(
            node_selector={"a/b": "c"},
            placement=Placement(gpu="LeastFragmentation"),
            over_quota_weights="Disabled",
            job_order="StrictFifo",
            time_based_fair_share=TimeBasedFairShare(weight_percent=50, half_life_seconds=3600),
            time_slicing=TimeSlicing(mode="Fair"),
        ),
        status=GpuNodePoolStatus(
            nodes=3,
            capacity="24",
            fragmented="0.5",
            past=PastUse(gpu=1, cpu=2, memory=3, as_of=4),
            conditions=[CONDITION],
        ),
    ),
    GpuPodGroup(
        metadata=META,
        spec=GpuPodGroupSpec(
            min_member=4,
            project="vision",
            preemptibility="Preemptible",
            max_concurrent_pods=4,
            expected_run_seconds=60,
            min_sub_group=1,
            sub_groups=[
                SubGroup(name="replica", min_sub_group=1),
                SubGroup(name="workers", parent="replica", min_member=3, topology_constraint=NEAR),
            ],
            topology_constraint=NEAR,
            preemption_delay_seconds=30,
            staleness_grace_seconds=-1,
        ),
        status=GpuPodGroupStatus(pending=1, conditions=[CONDITION]),
    ),
    GpuNode(
        metadata=META,
        spec=GpuNodeSpec(
            rows=[
                Row(
                    uid="705ab4f5-6393-11e8-b7cc-42010a800002",
                    namespace="team-a",
                    name="train-1",
                    project="vision",
                    cards=[
                        CardShare(index=0, milli=1000, memory_mib=81920),
                        CardShare(index=63, milli=1, memory_mib=0),
                    ],
                    state="nominated",
                    epoch=29_000_000_000_001,
                    counted={"nvidia.com/mig-1g.5gb": 2},
                    move=MoveHold(owner="705ab4f5", cpu_milli=100, memory_mib=64),
                )
            ]
        ),
        status=GpuNodeStatus(
            devices=[Device(index=0, memory_mib=81920, uuid="GPU-1", model="A100")],
            conditions=[CONDITION],
        ),
    ),
    GpuTopology(
        metadata=META,
        spec=GpuTopologySpec(
            levels=[TopologyLevel(node_label="zone"), TopologyLevel(node_label="a.b/rack")]
        ),
    ),
    GpuUsage(
        metadata=META,
        spec=GpuUsageSpec(
            account="Project",
            name="vision",
            day="2026-10-01",
            counted_to=1_790_812_800,
            lines=[
                UsageLine(
                    user="ann", node_pool="a100", model="A100", held=[1] * HOURS, lost=[2] * HOURS
                )
            ],
            over_quota=[OverQuota(node_pool="a100", held=[3] * HOURS)],
        ),
    ),
)


def path_of(kind: str, namespace: str, name: str = "") -> str:
    definition = next(d for d in crd.DEFINITIONS if d.kind.__name__ == kind)
    scope = f"namespaces/{namespace}/" if definition.is_namespaced else ""
    return f"/apis/ballast.dev/v1alpha1/{scope}{definition.plural}" + (f"/{name}" if name else "")


def body_of(kind: str, spec: dict[str, Any], name: str = "sample") -> dict[str, Any]:
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_every_field_of_a_struct_is_stored_and_read_back(api: Api, sample: msgspec.Struct) -> None:
    kind = type(sample)
    document: dict[str, Any] = msgspec.to_builtins(sample) | {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": kind.__name__,
    }
    api.kubectl("create", "-n", api.namespace, "-f", "-", stdin=json.dumps(document))
    if "status" in document:
        status = json.dumps({"status": document["status"]})
        where = (kind.__name__.lower(), "sample", "-n", api.namespace)
        api.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", status)
    stored = api.control_plane.admin.get(path_of(kind.__name__, api.namespace, "sample"))
    read: Any = msgspec.convert(stored, kind)
    expected: Any = sample
    assert read.spec == expected.spec
    assert getattr(read, "status", None) == getattr(expected, "status", None)


def test_samples_cover_every_kind() -> None:
    assert tuple(type(sample) for sample in SAMPLES) == kinds.KINDS


def _row(**fields: Any) -> dict[str, Any]:
    card = {"index": 0, "milli": 500, "memoryMiB": 1}
    usual = {"uid": "u", "namespace": "n", "name": "p", "state": "reserved", "cards": [card]}
    return usual | fields


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("GpuProject", {}, "spec.department"),
        ("GpuProject", {"department": ""}, "spec.department"),
        ("GpuProject", {"department": "d", "namespaces": ["a", "a"]}, "namespaces[1]"),
        ("GpuProject", {"department": "d", "namespaces": ["../a"]}, "namespaces[0]"),
        ("GpuProject", {"department": "d", "nodePools": [{"name": "a"}] * 2}, "nodePools[1]"),
        ("GpuNodePool", {"policy": "random"}, "spec.policy"),
        ("GpuNodePool", {"timeSlicing": {"leaseMilliseconds": 0}}, "leaseMilliseconds"),
        ("GpuPodGroup", {"minMember": 0}, "spec.minMember"),
        ("GpuPodGroup", {"minMember": 4, "maxConcurrentPods": 3}, "at least minMember"),
        (
            "GpuPodGroup",
            {"subGroups": [{"name": "workers", "parent": "replica"}]},
            "parent must be the name of another sub-group",
        ),
        ("GpuPodGroup", {"subGroups": [{"name": "a"}, {"name": "a"}]}, "subGroups[1]"),
        ("GpuNodePool", {"placement": {"gpu": "worst-fit"}}, "placement.gpu"),
        ("GpuNodePool", {"timeBasedFairShare": {"halfLifeSeconds": 1}}, "halfLifeSeconds"),
        ("GpuTopology", {"levels": [{"nodeLabel": "rack"}] * 2}, "levels[1]"),
        ("GpuNode", {"rows": [_row(state="stolen")]}, "rows[0].state"),
        ("GpuNode", {"rows": [_row(), _row(name="q")]}, "rows[1]"),
        ("GpuNode", {"rows": [_row(cards=[{"index": 0}])]}, "rows[0].cards[0].milli"),
        (
            "GpuNode",
            {"rows": [_row(cards=[{"index": 64, "milli": 1001, "memoryMiB": -1}])]},
            "rows[0].cards[0].milli",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_the_field(
    api: Api, kind: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(ApiRefusedError, match=r"4(00|22)") as caught:
        api.control_plane.admin.post(path_of(kind, api.namespace), body_of(kind, spec))
    assert field in str(caught.value)


def test_project_of_a_group_is_settled_once(api: Api) -> None:
    def change(project: str) -> None:
        patch = json.dumps({"spec": {"project": project}})
        api.kubectl("patch", "bpg", "sample", "-n", api.namespace, "--type=merge", "-p", patch)

    where = path_of("GpuPodGroup", api.namespace)
    api.control_plane.admin.post(where, body_of("GpuPodGroup", {"minMember": 2}))
    change("vision")
    with pytest.raises(Exception, match="returned non-zero") as caught:
        change("speech")
    assert any("project cannot be changed" in note for note in caught.value.__notes__)


def test_spec_written_through_the_status_is_ignored(api: Api) -> None:
    api.control_plane.admin.post(
        path_of("GpuNode", ""), body_of("GpuNode", {"rows": [_row()]}, "node-1")
    )
    patch = json.dumps(
        {"spec": {"rows": []}, "status": {"devices": [{"index": 0, "memoryMiB": 1}]}}
    )
    api.kubectl("patch", "gn", "node-1", "--subresource=status", "--type=merge", "-p", patch)
    stored = api.control_plane.admin.get(path_of("GpuNode", "", "node-1"))
    assert len(stored["spec"]["rows"]) == 1
    assert len(stored["status"]["devices"]) == 1


def test_columns_show_what_is_most_wanted(api: Api) -> None:
    api.control_plane.admin.post(
        path_of("GpuProject", ""), body_of("GpuProject", {"department": "research"}, "vision")
    )
    status = json.dumps({"status": msgspec.to_builtins(USE)})
    api.kubectl("patch", "bproj", "vision", "--subresource=status", "--type=merge", "-p", status)
    header, line = api.kubectl("get", "bproj").splitlines()
    assert header.split()[:3] == ["NAME", "DEPARTMENT", "QUOTA"]
    assert line.split()[:7] == ["vision", "research", "2.5", "unlimited", "4", "3", "0.5"]
    assert "vision" in api.kubectl("get", "ballast")


def test_what_is_in_force_is_shown_where_nothing_was_written(api: Api) -> None:
    body = {"nodePools": [{"name": "default"}], "department": "research"}
    made = {}
    for kind, spec in (("GpuNodePool", None), ("GpuPodGroup", {}), ("GpuProject", body)):
        document = body_of(kind, spec or {})
        if spec is None:
            del document["spec"]
        made[kind] = api.control_plane.admin.post(path_of(kind, api.namespace), document)["spec"]
    pool = made["GpuNodePool"]
    assert (pool["policy"], pool["timeSlicing"]["mode"]) == ("FairShare", "Disabled")
    assert pool["placement"] == {"gpu": "BinPack"}
    assert made["GpuPodGroup"]["minMember"] == 1
    figures = {"name": "default", "gpu": {"quota": 0, "overQuotaWeight": 1}, "rank": 0}
    assert made["GpuProject"]["nodePools"] == [figures]
    assert msgspec.convert(pool, kinds.GpuNodePoolSpec) == GpuNodePoolSpec()


def test_explain_tells_of_every_field(api: Api) -> None:
    told = api.kubectl("explain", "gpupodgroup.spec.preemptibility")
    assert "NonPreemptible" in told
    assert "<empty>" not in told

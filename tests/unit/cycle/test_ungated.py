"""Pods for autoscalers: ungated while their workload lacks nodes, and no longer."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import Elastic, ElasticNode, GpuProject
from extender.api.objects import Pod, SchedulingGate
from extender.api.reasons import Reason
from extender.cycle.keepers.provisioning import LOOK_S, ProvisioningKeeper
from extender.cycle.keepers.ungated import LOST_S, UngatedPods
from extender.cycle.pod_events import PodEvents
from extender.cycle.pods.writer import PodWriter
from extender.kube.client import Client
from extender.kube.errors import Conflict, NotFound
from extender.kube.recorder import ObjectRef
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.policy.scale_up import ScaleUp
from extender.state.cluster import ClusterState
from tests.support.builders import department, pod, pool, project

pytestmark = pytest.mark.looptime

NODE = ElasticNode(gpus=8, cpu=64, memory_gib=512)
BY_PODS = Elastic(max_nodes=4, node=NODE, trigger="UnschedulablePods")


class Scene:
    """The pool `gpu`, whose autoscaler reads pods, and an API server without ProvisioningRequests.

    team-a may have 16 GPUs.
    """

    def __init__(self, *pods: Pod) -> None:
        self.state = ClusterState()
        self.set_pool(BY_PODS)
        self.set_quota(16)
        self.pods: dict[str, Pod] = {}
        self.patches: dict[str, Any] = {}
        self.version = "1"
        self.conditions: dict[str, str] = {}
        self.deleted: list[str] = []
        self.told: list[tuple[str, Reason]] = []
        for each in pods:
            self.put(each)
        self.client: Any = create_autospec(Client, instance=True)
        self.client.list_all.side_effect = NotFound("no such resource")
        self.client.strategic_patch.side_effect = self._patch
        self.client.delete.side_effect = self._delete
        writer = PodWriter(self.client, self.state)
        events = PodEvents(self.state, self)  # type: ignore[arg-type]
        self.ungated = UngatedPods(self.state, writer, events)
        self.keeper = ProvisioningKeeper(self.client, self.state, self.ungated)

    def set_pool(self, elastic: Elastic) -> None:
        made = pool("gpu", pool="gpu").build()
        spec = replace(made.spec, elastic=elastic)
        self.state.apply(Upserted(replace(made, spec=spec)))

    def set_quota(self, gpus: int) -> None:
        self.state.apply(Upserted(department("d").quota(64, pool="gpu").build()))
        self.state.apply(Upserted(project("team-a").of("d").quota(gpus, pool="gpu").build()))

    def put(self, given: Pod) -> None:
        self.pods[given.metadata.name] = given
        self.state.apply(Upserted(given))

    def record(self, about: ObjectRef, reason: Reason, *_: object) -> None:
        self.told.append((about.name, reason))

    async def _patch(self, _resource: object, name: str, patch: Any, *_: object) -> Pod:
        """The pod without its gate, as the API server would have it."""
        if "status" in patch:
            if patch["metadata"]["resourceVersion"] != self.version:
                raise Conflict("the pod changed")
            self.conditions[name] = patch["status"]["conditions"][0]["type"]
            return self.pods[name]
        assert names.GATE in [gate["name"] for gate in patch["spec"]["schedulingGates"]]
        self.patches[name] = patch
        before = self.pods[name]
        spec = replace(
            before.spec,
            scheduling_gates=[],
            node_selector=(before.spec.node_selector or {}) | patch["spec"]["nodeSelector"],
        )
        notes = (before.metadata.annotations or {}) | {names.ANNOTATION_REVOKED: "- 0 0"}
        meta = replace(before.metadata, annotations=notes)
        self.pods[name] = replace(before, metadata=meta, spec=spec)
        return self.pods[name]

    async def _delete(self, _resource: object, name: str, *_: object, **__: object) -> None:
        assert self.conditions[name] == "DisruptionTarget"
        self.deleted.append(name)

    async def look(self, seconds: float = LOOK_S + 1) -> Plan:
        """What is decided now, with its notes; then so much time passes."""
        plan = decide(self.state.snapshot(1_000))
        self.keeper.start(plan)
        await asyncio.sleep(seconds)
        return self.keeper.noted(plan)


def member(name: str, size: int = 2) -> Any:
    made = pod(name).project("team-a").needs(1000, devices=8).pools("gpu")
    return made.gang("g", size)


def gang(size: int) -> list[Pod]:
    return [member(f"p{i}", size).build() for i in range(size)]


async def test_a_gang_that_lacks_nodes_loses_its_gate_and_asks_for_nodes_of_its_pool() -> None:
    scene = Scene(*gang(2))
    plan = await scene.look()
    assert scene.patches.keys() == {"p0", "p1"}
    assert scene.patches["p0"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    # The extender accepts no node for a pod that has lost its plan.
    assert scene.patches["p0"]["metadata"]["annotations"][names.ANNOTATION_PLAN] is None
    assert names.ANNOTATION_REVOKED in scene.patches["p0"]["metadata"]["annotations"]
    assert "2 nodes are requested by its pods" in plan.waits["team-a/g"].detail


async def test_what_is_above_quota_keeps_its_gate_and_is_told_why() -> None:
    scene = Scene(*gang(3))
    plan = await scene.look()
    assert scene.patches == {}
    assert "only work within its project's" in plan.waits["team-a/g"].detail


async def test_pods_that_no_controller_creates_again_keep_their_gate() -> None:
    scene = Scene(member("p0").bare().build(), member("p1").bare().build())
    plan = await scene.look()
    assert scene.patches == {}
    assert "that a controller creates again" in plan.waits["team-a/g"].detail


async def test_pods_keep_a_gate_of_others_and_theirs_until_it_is_gone() -> None:
    pods = gang(2)
    held = replace(pods[0].spec, scheduling_gates=[SchedulingGate(names.GATE), SchedulingGate("x")])
    scene = Scene(replace(pods[0], spec=held), pods[1])
    await scene.look()
    assert scene.patches == {}


async def test_ungated_pods_stay_while_nodes_are_owed_to_them() -> None:
    scene = Scene(*gang(2))
    for _ in range(3):
        await scene.look(LOST_S)
    assert len(scene.patches) == 2
    assert scene.client.strategic_patch.call_count == 2
    assert scene.deleted == []


async def test_pods_whose_quota_is_gone_are_deleted_to_come_back_behind_the_gate() -> None:
    scene = Scene(*gang(2))
    await scene.look()
    scene.set_quota(8)
    await scene.look()
    assert scene.deleted == []
    await scene.look(LOST_S)
    await scene.look()
    assert scene.deleted == ["p0", "p1"]
    assert ("p0", Reason.GATED_AGAIN) in scene.told
    labels = {"reason": "GatedAgain", "project": "team-a", "beneficiary": ""}
    # Metrics are those of the whole process: other tests count here too.
    assert (REGISTRY.get_sample_value("ballast_control_evicted_pods_total", labels) or 0) >= 2


async def test_a_pod_that_is_released_at_that_moment_stays() -> None:
    scene = Scene(*gang(2))
    await scene.look()
    scene.set_quota(8)
    scene.version = "2"
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == []
    scene.version = "1"
    await scene.look()
    assert scene.deleted == ["p0", "p1"]


async def test_a_claim_that_is_back_in_time_deletes_nothing() -> None:
    scene = Scene(*gang(2))
    await scene.look()
    for _ in range(3):
        scene.set_quota(8)
        await scene.look(LOST_S / 2)
        scene.set_quota(16)
        await scene.look(LOST_S / 2)
    assert scene.deleted == []


async def test_of_a_workload_that_is_owed_fewer_nodes_the_other_pods_are_deleted() -> None:
    scene = Scene(member("p0", 1).build(), member("p1", 1).build())
    await scene.look()
    assert len(scene.patches) == 2
    scene.set_quota(8)
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == ["p1"]


async def test_pods_of_one_pool_stay_while_others_of_their_gang_get_nodes_of_another() -> None:
    scene = Scene(member("p0").build(), member("p1").build())
    (workload,) = scene.state.workloads().values()
    uids = frozenset(each.uid for each in workload.pods)
    given = ScaleUp(workload, "gpu", workload.pods, frozenset({"new/gpu/0"}), uids)
    only_first = replace(given, pods=workload.pods[:1])
    pools = scene.state.snapshot(1_000).pools
    for scale_up in (given, only_first, only_first):
        await scene.ungated.keep({workload.key: scale_up}, [workload.key], pools)
        await asyncio.sleep(LOST_S + 1)
    assert scene.deleted == []


async def test_a_pod_whose_row_was_revoked_is_deleted_unless_nodes_are_owed_to_it() -> None:
    borrows = member("p0", 3).build()
    notes = (borrows.metadata.annotations or {}) | {names.ANNOTATION_REVOKED: "n1 1 1"}
    meta = replace(borrows.metadata, annotations=notes)
    ungated = replace(borrows, metadata=meta, spec=replace(borrows.spec, scheduling_gates=[]))
    scene = Scene(ungated, *gang(3)[1:])
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == ["p0"]


async def test_the_gate_stays_where_the_autoscaler_takes_requests() -> None:
    scene = Scene(*gang(2))
    scene.set_pool(replace(BY_PODS, trigger="ProvisioningRequest"))
    plan = await scene.look()
    assert scene.patches == {}
    assert "serves no ProvisioningRequest" in plan.waits["team-a/g"].detail


async def test_pods_of_a_daemon_set_stay_for_they_would_come_back_without_the_gate() -> None:
    daemon = member("p0", 3).direct().build()
    owner = daemon.metadata.controller
    assert owner is not None
    of_set = replace(owner, api_version="apps/v1", kind="DaemonSet", name="set", uid="uid-set")
    daemon = replace(daemon, metadata=replace(daemon.metadata, owner_references=[of_set]))
    scene = Scene(daemon)
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == []


@pytest.mark.parametrize("gates", [[], [SchedulingGate("x")]])
async def test_a_pod_that_would_not_come_back_or_that_others_hold_is_not_deleted(
    gates: list[SchedulingGate],
) -> None:
    made = member("p0", 3).build() if gates else member("p0", 3).bare().build()
    scene = Scene(replace(made, spec=replace(made.spec, scheduling_gates=gates)))
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == []


@pytest.mark.parametrize("is_left", [False, True])
async def test_pods_whose_project_has_no_part_in_the_pool_any_more_are_deleted(
    is_left: bool,
) -> None:
    alone = pod("p0").needs(1000, devices=8).gang("g", 1).build()
    scene = Scene(alone)
    await scene.look()
    assert scene.patches.keys() == {"p0"}
    if is_left:
        scene.state.apply(Upserted(project("team-a").of("d").quota(16, pool="other").build()))
        scene.state.apply(Upserted(pool("other", pool="other").build()))
    else:
        scene.state.apply(Removed(GpuProject, "uid-team-a", "", "team-a"))
    await scene.look(LOST_S + 1)
    await scene.look()
    assert scene.deleted == ["p0"]

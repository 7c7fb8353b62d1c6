"""ProvisioningRequests: one for each workload that lacks nodes, while it does."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import Elastic, ElasticNode
from extender.api.objects import (
    Affinity,
    Condition,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    ProvisioningRequestStatus,
    Requirement,
)
from extender.api.reasons import Reason, Refused
from extender.cycle.keepers.provisioning import LOOK_S, RETRY_S, ProvisioningKeeper
from extender.cycle.keepers.ungated import UngatedPods
from extender.kube.client import Client
from extender.kube.errors import NotFound
from extender.kube.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from extender.kube.wire import Page
from extender.policy.decide import decide
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from tests.support.builders import department, node, pod, pool, project

pytestmark = pytest.mark.looptime

ELASTIC = Elastic(max_nodes=4, node=ElasticNode(gpus=8, cpu=64, memory_gib=512))


def elastic_pool(given: Elastic | None = ELASTIC) -> Any:
    made = pool("gpu", pool="gpu").build()
    return replace(made, spec=replace(made.spec, elastic=given))


class Scene:
    """A model, and an API server that has ProvisioningRequests, or serves none."""

    def __init__(self, *objects: Any, is_served: bool = True) -> None:
        self.state = ClusterState()
        queues = (
            department("d").quota(64, pool="gpu").build(),
            project("team-a").of("d").quota(16, pool="gpu").build(),
        )
        for each in (elastic_pool(), *queues, *objects):
            self.state.apply(Upserted(each))
        self.is_served = is_served
        self.requests: dict[str, ProvisioningRequest] = {}
        self.bodies: dict[str, Any] = {}
        self.templates: dict[str, Any] = {}
        self.n_created = 0
        self.client: Any = create_autospec(Client, instance=True)
        self.client.list_all.side_effect = self._list
        self.client.create.side_effect = self._create
        self.client.delete.side_effect = self._delete
        ungated: Any = create_autospec(UngatedPods, instance=True)
        self.keeper = ProvisioningKeeper(self.client, self.state, ungated)

    async def _list(self, resource: object, **_: object) -> Page[ProvisioningRequest]:
        if not self.is_served:
            raise NotFound("the server could not find the requested resource")
        return Page(list(self.requests.values()))

    async def _create(self, resource: object, body: Any, namespace: str = "") -> Any:
        name = body["metadata"]["name"]
        if resource is POD_TEMPLATES:
            self.templates[name] = body
            return None
        assert resource is PROVISIONING_REQUESTS
        self.n_created += 1
        meta = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{self.n_created}",
            annotations=body["metadata"]["annotations"],
        )
        self.bodies[name] = body
        spec = msgspec.convert(body["spec"], ProvisioningRequestSpec)
        for each in spec.pod_sets:
            assert each.pod_template_ref.name in self.templates
        self.requests[name] = ProvisioningRequest(meta, spec)
        return self.requests[name]

    async def _delete(self, resource: object, name: str, *_: object, **__: object) -> None:
        del (self.templates if resource is POD_TEMPLATES else self.requests)[name]

    async def look(self, plan: Plan | None = None) -> Plan:
        """The plan, by default what is decided now, with its notes after one look."""
        plan = plan or decide(self.state.snapshot(1_000))
        self.keeper.start(plan)
        await asyncio.sleep(LOOK_S + 1)
        return self.keeper.noted(plan)

    def say(self, *conditions: str) -> None:
        (name,) = self.requests
        told = [Condition(type=each, status="True") for each in conditions]
        status = ProvisioningRequestStatus(conditions=told)
        self.requests[name] = replace(self.requests[name], status=status)


def member(name: str, size: int) -> Any:
    made = pod(name).project("team-a").needs(1000, devices=8).pools("gpu")
    return made.gang("g", size).build()


def gang(n: int) -> list[Any]:
    return [member(f"p{i}", n) for i in range(n)]


async def test_a_gang_that_lacks_nodes_has_one_request_of_exactly_its_pods() -> None:
    scene = Scene(*gang(2))
    for _ in range(3):
        plan = await scene.look()
    assert scene.n_created == 1
    ((name, body),) = scene.bodies.items()
    assert body["spec"]["provisioningClassName"].startswith("best-effort-atomic-scale-up.")
    (pod_set,) = body["spec"]["podSets"]
    assert pod_set["count"] == 2
    ((_, template),) = scene.templates.items()
    spec = template["template"]["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {names.NVIDIA_GPU: "8"}
    assert spec["nodeSelector"] == {"pool": "gpu"}
    detail = plan.waits["team-a/g"].detail
    assert f"2 nodes are requested by ProvisioningRequest {name}" in detail


async def test_a_request_asks_for_nodes_that_its_pods_may_use() -> None:
    rule = Requirement("zone", "In", ["a"])
    affinity = Affinity(NodeAffinity(NodeSelector([NodeSelectorTerm([rule])])))
    picky = pod("p").needs(1000, devices=8).pools("gpu").on_nodes(pool="gpu").tolerates("team")
    made = picky.build()
    # The new nodes of the pool would have the zone.
    node_of = replace(ELASTIC.node, labels={"zone": "a"})
    scene = Scene(replace(made, spec=replace(made.spec, affinity=affinity)))
    scene.state.apply(Upserted(elastic_pool(replace(ELASTIC, node=node_of))))
    await scene.look()
    ((_, template),) = scene.templates.items()
    spec = template["template"]["spec"]
    assert [each["key"] for each in spec["tolerations"]] == ["team"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    (found,) = term["matchExpressions"]
    assert (found["key"], found["values"]) == ("zone", ["a"])


async def test_what_is_above_quota_has_none_and_is_told_why() -> None:
    scene = Scene(*gang(3))
    plan = await scene.look()
    assert scene.requests == {}
    assert "only work within its project's" in plan.waits["team-a/g"].detail


async def test_a_request_goes_when_its_workload_does() -> None:
    pods = gang(2)
    scene = Scene(*pods)
    await scene.look()
    assert len(scene.requests) == 1
    for each in pods:
        meta = each.metadata
        scene.state.apply(Removed(Pod, meta.uid, meta.namespace, meta.name))
    await scene.look()
    assert (scene.requests, scene.templates) == ({}, {})


async def test_a_request_gives_way_to_work_that_comes_first() -> None:
    scene = Scene(*gang(2))
    scene.state.apply(Upserted(elastic_pool(replace(ELASTIC, max_nodes=2))))
    await scene.look()
    (first,) = scene.requests
    urgent = pod("urgent").project("team-a").needs(1000, devices=8).pools("gpu").priority(80)
    scene.state.apply(Upserted(urgent.build()))
    await scene.look()
    (second,) = scene.requests
    assert first.startswith("g-")
    assert second.startswith("urgent-")


async def test_a_request_stays_while_the_cycle_has_no_time_for_its_workload() -> None:
    scene = Scene(*gang(2))
    await scene.look()
    (before,) = scene.requests.values()
    behind = Refused(Reason.WAITING_FOR_TURN, "the cycle had no time left for it")
    await scene.look(Plan(waits={"team-a/g": behind}, cut=frozenset({"team-a/g"})))
    assert list(scene.requests.values()) == [before]


async def test_a_request_goes_when_its_pool_grows_no_more_and_then_nothing_is_asked() -> None:
    scene = Scene(*gang(2))
    await scene.look()
    scene.state.apply(Upserted(elastic_pool(None)))
    for _ in range(4):
        await scene.look()
    assert scene.requests == {}
    # One that deletes it, and one that finds none.
    assert scene.client.list_all.call_count == 3


async def test_a_request_that_changed_its_size_is_made_anew() -> None:
    scene = Scene(*gang(1))
    await scene.look()
    for each in gang(2):
        scene.state.apply(Upserted(each))
    await scene.look()
    await scene.look()
    ((_, body),) = scene.bodies.items()
    assert (scene.n_created, body["spec"]["podSets"][0]["count"]) == (2, 2)


@pytest.mark.parametrize("word", ["Failed", "BookingExpired", "CapacityRevoked"])
async def test_a_request_that_came_to_nothing_is_made_again_after_a_while(word: str) -> None:
    scene = Scene(*gang(2))
    await scene.look()
    scene.say(word)
    plan = await scene.look()
    assert f"the autoscaler answered with {word}" in plan.waits["team-a/g"].detail
    assert scene.n_created == 1
    await asyncio.sleep(RETRY_S)
    await scene.look()
    await scene.look()
    assert scene.n_created == 2


async def test_requests_are_counted_by_their_newest_condition() -> None:
    def counted(state: str) -> float | None:
        name = "ballast_control_provisioning_requests"
        return REGISTRY.get_sample_value(name, {"state": state})

    scene = Scene(*gang(2))
    await scene.look()
    scene.say("Accepted")
    await scene.look()
    assert counted("Accepted") == 1
    scene.say("Accepted", "Provisioned", "BookingExpired")
    await scene.look()
    assert (counted("Accepted"), counted("Provisioned")) == (None, None)
    assert counted("BookingExpired") == 1


async def test_a_cluster_without_the_kind_is_reported() -> None:
    scene = Scene(*gang(2), is_served=False)
    plan = await scene.look()
    assert "serves no ProvisioningRequest" in plan.waits["team-a/g"].detail
    assert scene.n_created == 0


async def test_reasons_of_others_are_left_as_they_are() -> None:
    scene = Scene(*gang(2), node("n1").build())
    await scene.look()
    plan = Plan(waits={"ns/x": Refused(Reason.WAITING_FOR_TURN, "y")})
    plan = scene.keeper.noted(plan)
    assert plan.waits["ns/x"].detail == "y"

"""The real kube-scheduler with the shipped configuration, calling the extender."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY

from extender.api.kinds import CardShare
from extender.kube.client import Client
from extender.kube.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from tests.integration.http.rig import World, until, world_of
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.schedulerconfig import read_scheduler_config
from tests.support.faultproxy import FaultProxy
from tests.unit.http.rig import running

#: Pods of a burst, more than kube-scheduler's connections that `serve` keeps.
N_BURST = 300
N_BURST_NODES = 4
#: Seconds that each Binding of the burst takes: 64 at a time need 5 s, longer than the time that
#: kube-scheduler waits for one bind.
SLOW_S = 1.0
BURST_S = 90.0

SHIPPED = Path(__file__).parents[3] / "manifests" / "base" / "scheduler"


async def show_gpu_milli(world: World, node: str, milli: int) -> None:
    """As the controller does: the node's capacity of our resource."""
    told = {"ballast.dev/gpu-milli": str(milli)}
    await world.client.merge_patch(
        NODES, node, {"status": {"capacity": told, "allocatable": told}}, subresource="status"
    )


async def n_bound(world: World) -> int:
    page = await world.client.list_all(PODS, namespace=world.namespace)
    return sum(bool(pod.spec.node_name) for pod in page.items)


async def test_sixteen_halves_land_on_eight_cards_in_pairs(cluster: Cluster) -> None:
    (name,) = await asyncio.to_thread(cluster.add_gpu_nodes, 1, 8)
    async with world_of(cluster) as world:
        await world.add_project(quota="8")
        await world.add_node(name)
        await show_gpu_milli(world, name, 8000)
        async with world.extender() as extender:
            await asyncio.to_thread(cluster.start_scheduler, SHIPPED, extender_url=extender.url)
            await asyncio.gather(*(world.add_pod(f"half-{i}") for i in range(16)))

            async def are_bound() -> bool:
                return await n_bound(world) == 16

            await until(are_bound, "16 bound pods")
        rows = await world.rows(name)
        on_cards = Counter(card.index for row in rows for card in row.cards)
        assert on_cards == dict.fromkeys(range(8), 2)
        for row in rows:
            pod = await world.pod(row.name)
            (card,) = row.cards
            assert pod.metadata.uid == row.uid
            told = pod.metadata.annotation("ballast.dev/cards")
            assert told == f"{card.index}:500:{card.memory_mib}"


async def test_a_planned_pod_goes_where_its_plan_says(cluster: Cluster) -> None:
    names = await asyncio.to_thread(cluster.add_gpu_nodes, 3, 8)
    async with world_of(cluster) as world:
        await world.add_project(quota="8")
        for name in names:
            await show_gpu_milli(world, name, 8000)
            if name != names[1]:
                await world.add_node(name)
        async with world.extender() as extender:
            pod = await world.add_planned("planned", names[1])
            await asyncio.to_thread(cluster.start_scheduler, SHIPPED, extender_url=extender.url)

            async def is_bound() -> bool:
                return await n_bound(world) == 1

            await until(is_bound, "the planned pod bound")
        bound = await world.pod("planned")
        assert (bound.spec.node_name, bound.metadata.uid) == (names[1], pod.metadata.uid)


async def add_burst(world: World, nodes: list[str]) -> None:
    """Planned pods of 1 % of a GPU each, with their rows."""
    planned = [(f"burst-{number}", nodes[number % len(nodes)]) for number in range(N_BURST)]
    pods = await asyncio.gather(
        *(world.add_pod(name, "0.01", plan=f"7 {node}") for name, node in planned)
    )
    for node in nodes:
        await show_gpu_milli(world, node, 8000)
        held = [pod for pod, (_, at) in zip(pods, planned, strict=True) if at == node]
        rows = [
            world.row(pod, 7, cards=[CardShare(number % 8, 10, 100)])
            for number, pod in enumerate(held)
        ]
        await world.add_node(node, rows=rows)


async def test_of_a_burst_on_a_slow_api_server_few_pods_need_a_second_attempt(
    cluster: Cluster, tmp_path: Path
) -> None:
    nodes = await asyncio.to_thread(cluster.add_gpu_nodes, N_BURST_NODES, 8)
    async with world_of(cluster) as world, FaultProxy(cluster.control_plane.url) as proxy:
        await world.add_project(quota="8")
        cluster.control_plane.kill("kube-scheduler")
        await add_burst(world, nodes)
        async with running(proxy.kubeconfig(world.kubeconfig, tmp_path)) as extender:

            async def is_ready() -> bool:
                return extender.extender.verbs.is_ready

            await until(is_ready, "a filled cache")
            proxy.delay_s = SLOW_S
            await asyncio.to_thread(cluster.start_scheduler, SHIPPED, extender_url=extender.url)
            async with asyncio.timeout(BURST_S):
                while await n_bound(world) < N_BURST:
                    await asyncio.sleep(0.5)
        again = await unscheduled(world.client, world.namespace)
        assert len(again) <= N_BURST // 10, again


async def unscheduled(client: Client, namespace: str) -> list[str]:
    """Notes of the events in which kube-scheduler says that it did not bind a pod."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?limit=2000"
    events = json.loads(await client.get_raw(path))["items"]
    return [event["note"] for event in events if event["reason"] == "FailedScheduling"]


async def test_a_pod_over_its_projects_share_stays_pending_and_is_told_why(
    cluster: Cluster,
) -> None:
    (name,) = await asyncio.to_thread(cluster.add_gpu_nodes, 1, 1)
    async with world_of(cluster) as world:
        await world.add_project(quota="0.5")
        await world.add_node(name, cards=1)
        await show_gpu_milli(world, name, 1000)
        async with world.extender() as extender:
            await asyncio.to_thread(cluster.start_scheduler, SHIPPED, extender_url=extender.url)
            await world.add_pod("first")

            async def is_bound() -> bool:
                return await n_bound(world) == 1

            await until(is_bound, "the first pod bound")
            await world.add_pod("second")

            async def is_refused() -> bool:
                conditions = (await world.pod("second")).status.conditions or []
                return any("OverFairShare: " in condition.message for condition in conditions)

            await until(is_refused, "a refusal that says OverFairShare")
        assert (await world.pod("second")).spec.node_name == ""


def with_preemption(folder: Path) -> Path:
    """The shipped configuration with the stock preemption turned on."""
    config = read_scheduler_config(SHIPPED)
    for profile in config["profiles"]:
        disabled = profile["plugins"]["multiPoint"]["disabled"]
        disabled[:] = [each for each in disabled if each["name"] != "DefaultPreemption"]
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("is_same_project", [True, False])
async def test_stock_preemption_takes_only_from_the_same_project(
    cluster: Cluster, tmp_path: Path, is_same_project: bool
) -> None:
    (name,) = await asyncio.to_thread(cluster.add_gpu_nodes, 1, 1)
    async with world_of(cluster) as world:
        await world.add_project(quota="1")
        rival = world if is_same_project else await a_rival(world)
        for priority_class, value in (("low", 10), ("high", 60)):
            body = {"metadata": {"name": priority_class}, "value": value}
            await world.client.create(PRIORITY_CLASSES, body)
        await world.add_node(name, cards=1)
        await show_gpu_milli(world, name, 1000)
        async with world.extender() as extender:
            config = with_preemption(tmp_path)
            await asyncio.to_thread(cluster.start_scheduler, config, extender_url=extender.url)
            await rival.add_pod("victim", "0.9", priority_class="low")

            async def is_bound() -> bool:
                return await n_bound(rival) == 1

            await until(is_bound, "the victim bound")
            outcome = "ok" if is_same_project else "refused"
            before = n_preempt_calls(outcome)
            await world.add_pod("preemptor", "0.8", priority_class="high")

            async def was_asked() -> bool:
                return n_preempt_calls(outcome) > before

            await until(was_asked, f"a preempt call that was {outcome}")
            if is_same_project:

                async def is_taken() -> bool:
                    page = await rival.client.list_all(PODS, namespace=rival.namespace)
                    names = {
                        pod.metadata.name
                        for pod in page.items
                        if pod.metadata.deletion_timestamp is None
                    }
                    return "victim" not in names

                await until(is_taken, "the victim taken")
            else:
                assert (await rival.pod("victim")).metadata.deletion_timestamp is None
                assert (await world.pod("preemptor")).spec.node_name == ""


def n_preempt_calls(outcome: str) -> float:
    """Preempt calls with this result that this process has answered."""
    labels = {"verb": "preempt", "result": outcome}
    return REGISTRY.get_sample_value("ballast_extender_requests_total", labels) or 0.0


async def a_rival(world: World) -> World:
    """Another project with a namespace of its own."""
    namespace = f"{world.namespace}-rival"
    await world.client.create(NAMESPACES, {"metadata": {"name": namespace}})
    other = World(world.client, namespace, world.kubeconfig)
    await other.add_project(quota="1", name="team-b")
    return other

"""Held GPU capacity, from objects as the API server returns them."""

import asyncio
import json
from typing import Any

import pytest

from extender.api import names
from extender.cli.holdings import agents, held
from extender.cli.holdings.agents import Seen, Use
from extender.kube.errors import Unavailable
from extender.kube.transport import Call
from gpu_shim.top import figures


def gpu_node(**status: Any) -> dict[str, Any]:
    row = {"uid": "u", "namespace": "n", "name": "a", "state": "bound",
           "cards": [{"index": 0, "milli": 500, "memoryMiB": 8000}]}  # fmt: skip
    promised = {**row, "name": "b", "state": "nominated"}
    whole = {**row, "name": "c", "cards": [{"index": 1, "milli": 1000, "memoryMiB": 16000}]}
    devices = [{"index": at, "memoryMiB": 16000, "model": "T4"} for at in range(4)]
    devices[3]["health"] = "Unhealthy"
    return {
        "metadata": {"name": "g0", "labels": {names.LABEL_NODE_POOL: "default"}},
        "spec": {"rows": [row, promised, whole]},
        "status": {"devices": devices, **status},
    }


class TestNodes:
    def test_rows_that_hold_are_summed_and_promised_ones_are_not(self) -> None:
        found = held.node_with_use(gpu_node(), {})
        assert (found["held"], found["free"], found["freeWhole"]) == ("1.5", "1.5", 1)
        assert (found["cards"], found["healthyCards"], found["pods"]) == (4, 3, 2)
        assert found["gpus"][0]["pods"] == ["n/a"]
        assert "usedMiB" not in found

    def test_foreign_pods_leave_less_free(self) -> None:
        foreign = [{"uid": "x", "namespace": "n", "name": "f", "gpus": 1}]
        found = held.node_with_use(gpu_node(foreign=foreign), {})
        assert (found["free"], found["freeWhole"], found["foreign"]) == ("0.5", 0, 1)

    def test_an_unhealthy_card_that_is_held_takes_nothing_from_the_others(self) -> None:
        node = gpu_node()
        node["spec"]["rows"][2]["cards"][0]["index"] = 3
        found = held.node_with_use(node, {})
        assert (found["held"], found["free"], found["freeWhole"]) == ("1.5", "2.5", 2)

    def test_use_is_shown_where_an_agent_told_it(self) -> None:
        found = held.node_with_use(gpu_node(), {("g0", 0): Use(4000, 0.31)})
        assert (found["gpus"][0]["usedMiB"], found["gpus"][0]["busy"]) == (4000, "31%")
        assert found["usedMiB"] == 4000
        assert "usedMiB" not in found["gpus"][1]


PAGE = """
ballast_agent_info{{node="g0",mode="strict"}} 1
ballast_gpu_card_info{{card="GPU-1",model="T4"}} 1
ballast_gpu_card_memory_bytes{{card="GPU-1",index="0"}} 16777216000
ballast_gpu_card_healthy{{card="GPU-1",index="0"}} 1
ballast_gpu_memory_used_bytes{{card="GPU-1",namespace="n",pod="a"}} 1048576000
ballast_gpu_held_seconds_total{{card="GPU-1",namespace="n",pod="a"}} {held}
"""


def test_two_pages_of_an_agent_say_what_a_pod_uses() -> None:
    seen = Seen()
    before, after = (figures(PAGE.format(held=held)) for held in (10.0, 10.5))
    agents.add_use(seen, before, after, 2.0)
    assert seen.pods["n", "a"] == Use(1000, 0.25)
    assert seen.cards["g0", 0] == Use(1000, 0.25)


def test_only_pods_that_have_cards_and_have_not_ended_are_shown() -> None:
    def made(name: str, phase: str, cards: str) -> dict[str, Any]:
        notes = {names.ANNOTATION_CARDS: cards} if cards else {}
        meta = {"namespace": "n", "name": name, "annotations": notes}
        return {"metadata": meta, "spec": {"nodeName": "g0"}, "status": {"phase": phase}}

    pods = [
        made("waits", "Pending", ""),
        made("runs", "Running", "0:500:8000"),
        made("ended", "Succeeded", "1:1000:16000"),
        made("failed", "Failed", "2:1000:16000"),
    ]

    class Api:
        async def send(self, call: Call) -> bytes:
            # Neither projects nor agents are there.
            items = pods if call.path == "/api/v1/namespaces/n/pods" else []
            return json.dumps({"metadata": {}, "items": items}).encode()

    client: Any = Api()
    (found,) = asyncio.run(held.read_pods(client, "n", ""))
    assert (found["name"], found["held"], found["heldMiB"]) == ("runs", "0.5", 8000)


def test_a_pod_belongs_to_the_oldest_project_that_lists_its_namespace() -> None:
    def project(name: str, since: str, *namespaces: str) -> dict[str, Any]:
        meta = {"name": name, "creationTimestamp": since}
        return {"metadata": meta, "spec": {"namespaces": list(namespaces)}}

    pod = {"namespace": "n", "labels": {names.LABEL_PROJECT: "former"}}
    young, old = project("young", "2026-02", "n"), project("old", "2026-01", "m", "n")
    assert held.project_of(pod, [young, old]) == "old"
    assert held.project_of(pod, [project("other", "2026-01", "m")]) == ""
    assert held.project_of(pod, None) == "former"


class Agents:
    """An API server with an agent on each of so many nodes; those in `silent` do not answer."""

    def __init__(self, n_nodes: int, *silent: str) -> None:
        self.nodes = [f"g{at}" for at in range(n_nodes)]
        self.silent = silent
        self.asked: list[str] = []

    async def send(self, call: Call) -> bytes:
        """The agents' pods, or the metrics of one."""
        *_, name, proxy, metrics = call.path.split("/")
        if (proxy, metrics) != ("proxy", "metrics"):
            pods = [
                {"metadata": {"name": f"agent-{node}"}, "spec": {"nodeName": node}}
                for node in self.nodes
            ]
            return json.dumps({"metadata": {}, "items": pods}).encode()
        node = name.removeprefix("agent-").partition(":")[0]
        self.asked.append(node)
        if node in self.silent:
            raise Unavailable("no answer")
        return PAGE.format(held=1.0).replace('node="g0"', f'node="{node}"').encode()


@pytest.mark.looptime
async def test_an_agent_that_cannot_be_reached_leaves_its_node_without_figures() -> None:
    api = Agents(3, "g1")
    seen = await agents.uses(api, {"g0", "g1"})  # type: ignore[arg-type]
    assert seen.cards.keys() == {("g0", 0)}
    assert "g2" not in api.asked


@pytest.mark.looptime
async def test_so_many_agents_are_read_at_most() -> None:
    api = Agents(agents.MOST_AGENTS + 5)
    await agents.uses(api, set(api.nodes))  # type: ignore[arg-type]
    assert len(set(api.asked)) == agents.MOST_AGENTS

"""Held GPU capacity, from objects as the API server returns them."""

from typing import Any

from extender.api import names
from extender.cli.holdings import agents, held
from extender.cli.holdings.agents import Seen, Use
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
        found = held._node(gpu_node(), {})
        assert (found["held"], found["free"], found["freeWhole"]) == ("1.5", "1.5", 1)
        assert (found["cards"], found["healthyCards"], found["pods"]) == (4, 3, 2)
        assert found["gpus"][0]["pods"] == ["n/a"]
        assert "usedMiB" not in found

    def test_foreign_pods_leave_less_free(self) -> None:
        foreign = [{"uid": "x", "namespace": "n", "name": "f", "gpus": 1}]
        found = held._node(gpu_node(foreign=foreign), {})
        assert (found["free"], found["freeWhole"], found["foreign"]) == ("0.5", 0, 1)

    def test_use_is_shown_where_an_agent_told_it(self) -> None:
        found = held._node(gpu_node(), {("g0", 0): Use(4000, 0.31)})
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
    agents._add(seen, before, after, 2.0)
    assert seen.pods["n", "a"] == Use(1000, 0.25)
    assert seen.cards["g0", 0] == Use(1000, 0.25)


def test_a_pod_belongs_to_the_oldest_project_that_lists_its_namespace() -> None:
    def project(name: str, since: str, *namespaces: str) -> dict[str, Any]:
        meta = {"name": name, "creationTimestamp": since}
        return {"metadata": meta, "spec": {"namespaces": list(namespaces)}}

    pod = {"namespace": "n", "labels": {names.LABEL_PROJECT: "former"}}
    young, old = project("young", "2026-02", "n"), project("old", "2026-01", "m", "n")
    assert held._project_of(pod, [young, old]) == "old"
    assert held._project_of(pod, [project("other", "2026-01", "m")]) == ""
    assert held._project_of(pod, None) == "former"

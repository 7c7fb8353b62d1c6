"""The trace slice in examples/ follows its rules."""

import importlib.util
from collections import Counter
from pathlib import Path

import yaml

from extender.api.demand import read_demand
from extender.api.objects import Container, ObjectMeta, Pod, PodSpec, Resources
from tests.demo.trace import (
    CARD_MIB,
    EXAMPLES,
    Workload,
    node_object,
    read_nodes,
    read_workloads,
    workload_object,
)


def demand_by_project(workloads: list[Workload]) -> Counter[str]:
    asked: Counter[str] = Counter()
    for workload in workloads:
        asked[workload.project] += workload.total_milli
    return asked


def quotas() -> dict[str, int]:
    documents = yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text())
    return {
        each["metadata"]["name"]: each["spec"]["nodePools"][0]["gpu"]["quota"] * 1000
        for each in documents
        if each["kind"] == "GpuProject"
    }


def test_the_committed_slice_is_what_the_script_makes(shared: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_slice", EXAMPLES / "make_slice.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, content in script.make(shared / "traces" / "openb").items():
        assert (EXAMPLES / name).read_text() == content, f"{name}: run examples/make_slice.py"


def test_the_slice_asks_for_about_130_percent_of_its_nodes() -> None:
    nodes, workloads = read_nodes(), read_workloads()
    capacity = sum(node.gpus for node in nodes) * 1000
    assert len(nodes) == 64
    assert sum(each.size for each in workloads) == 400
    assert 1.27 < sum(demand_by_project(workloads).values()) / capacity < 1.34


def test_it_has_fractions_whole_gpus_and_gangs_of_two_to_eight() -> None:
    workloads = read_workloads()
    gangs = [each.size for each in workloads if each.is_gang]
    assert len(gangs) > 20
    assert (min(gangs), max(gangs)) == (2, 8)
    assert {each.gpus for each in workloads} == {1, 2, 4, 8}
    assert sum(each.milli < 1000 for each in workloads) == 206


def test_while_the_owner_is_away_the_others_ask_for_more_than_there_is() -> None:
    capacity = sum(node.gpus for node in read_nodes()) * 1000
    asked = demand_by_project(read_workloads())
    assert sum(asked.values()) - asked["search"] > capacity
    assert asked["search"] > quotas()["search"]


def test_quotas_fit_the_cluster_and_their_departments() -> None:
    capacity = sum(node.gpus for node in read_nodes()) * 1000
    documents = list(yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text()))
    departments = {
        each["metadata"]["name"]: each["spec"]["nodePools"][0]["gpu"]["quota"] * 1000
        for each in documents
        if each["kind"] == "GpuDepartment"
    }
    sums: Counter[str] = Counter()
    for each in documents:
        if each["kind"] == "GpuProject":
            sums[each["spec"]["department"]] += quotas()[each["metadata"]["name"]]
    assert sums == departments
    assert sum(departments.values()) <= capacity


def test_non_preemptible_work_fits_every_projects_quota() -> None:
    served = demand_by_project([each for each in read_workloads() if each.kind == "inference"])
    assert served
    assert all(milli < quotas()[project] for project, milli in served.items())


def test_every_workload_fits_some_node() -> None:
    nodes = read_nodes()
    for each in read_workloads():
        assert any(
            node.gpus >= each.gpus
            and node.cpu_milli >= each.cpu_milli
            and node.memory_mib >= each.memory_mib
            for node in nodes
        ), each


def test_the_objects_ask_for_what_the_trace_says() -> None:
    for workload in read_workloads():
        template = workload_object(workload)[1]["spec"]["template"]
        meta, spec = template["metadata"], template["spec"]
        listed = spec["containers"][0]["resources"]
        pod = Pod(
            ObjectMeta(name=workload.name, annotations=meta["annotations"]),
            PodSpec(
                containers=[
                    Container(resources=Resources(listed["requests"], listed.get("limits")))
                ]
            ),
        )
        demand = read_demand(pod)
        assert (demand.devices, demand.milli) == (workload.gpus, workload.milli)  # type: ignore[union-attr]
        assert demand.cpu_milli == workload.cpu_milli  # type: ignore[union-attr]
        assert demand.memory_mib == workload.memory_mib  # type: ignore[union-attr]


def test_every_model_of_the_slice_has_its_memory() -> None:
    for node in read_nodes():
        labels = node_object(node)["metadata"]["labels"]
        assert labels["nvidia.com/gpu.memory"] == str(CARD_MIB[node.model])


def test_the_files_say_where_the_data_comes_from() -> None:
    for path in EXAMPLES.glob("*.csv"):
        assert "Apache-2.0" in path.read_text()
        assert "ATC 2023" in path.read_text()

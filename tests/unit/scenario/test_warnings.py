"""Valid cases that are probably not intended."""

from typing import Any

import pytest

from extender.scenario.faults import faults_of
from extender.scenario.warnings import warnings_on
from tests.unit.scenario.written import case, job, node, queue

TREE = [queue("d"), queue("a", parent="d"), queue("b", parent="d")]
RACKS = [{"name": "t", "levels": [{"label": "rack"}, {"label": "host"}]}]
IN_G = {"name": "t", "group": "g"}


def near(**rule: str) -> dict[str, Any]:
    return {"jobs": [job(group={"children": [{"name": "g", "topology": rule}]}, tasks=[IN_G])]}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"jobs": [job(of="z")]}, "jobs[0].queue: there is no queue z; there are: a, b"),
        (
            {"jobs": [job(of="d")]},
            "jobs[0].queue: d has queues below it, so jobs go to those: a, b",
        ),
        (
            {"steps": [{"add": [job(of="z")]}]},
            "steps[0].add[0].queue: there is no queue z; there are: a, b",
        ),
        (
            {"jobs": [job(of="a")], "budgets": [{"name": "b", "jobs": ["x"], "minAvailable": 1}]},
            "budgets[0].jobs: there is no job x; there are: j",
        ),
        (
            {
                "jobs": [job(of="a", namespace="n")],
                "budgets": [{"name": "b", "jobs": ["j"], "minAvailable": 1}],
            },
            "budgets[0].jobs: j is in namespace n, the budget in default: it does not cover it",
        ),
        (
            near(name="u", required="rack"),
            "jobs[0].group.children[0].topology.name: there is no topology u; there are: t",
        ),
        (
            near(name="t", required="zone"),
            "jobs[0].group.children[0].topology.required: topology t has no level zone;"
            " there are: rack, host",
        ),
        (
            near(name="t", preferred="zone"),
            "jobs[0].group.children[0].topology.preferred: topology t has no level zone;"
            " there are: rack, host",
        ),
        ({"jobs": [job(tasks=[])]}, "jobs[0].tasks: it has none"),
        (
            {"queues": [*TREE, queue("c", usage={"cpu": 1.5})]},
            "queues[3].usage.cpu: 1.5 is more than the whole cluster",
        ),
        (
            {"jobs": [job(group={"minGroups": 2, "children": [{"name": "g"}]}, tasks=[IN_G])]},
            "jobs[0].group.minGroups: 2, and there are 1 children",
        ),
        (
            {"nodes": [node(mig={"instances": {"nvidia.com/mig-1g.5gb": 1}})]},
            "nodes[0].mig: its instances count, though strategy mixed is not stated",
        ),
        (
            {"nodes": [node(numa={"zones": 2})]},
            "nodes[0].numa: has no effect: decisions ignore NUMA zones",
        ),
        (
            {"nodes": [node()], "jobs": [job(tasks=[{"name": "t", "node": "n0"}])]},
            "jobs[0].tasks[0].node: has no effect on a pending task;"
            " nodeSelector keeps one on a node",
        ),
    ],
)
def test_it_is_reported_with_its_place_and_is_no_fault(more: dict[str, Any], told: str) -> None:
    found = case(**({"queues": TREE, "topologies": RACKS} | more))
    assert list(warnings_on(found)) == [told]
    assert not list(faults_of(found))


def test_many_queues_are_not_all_listed() -> None:
    (told,) = warnings_on(case(queues=[queue(f"q{at}") for at in range(11)], jobs=[job(of="z")]))
    assert told.endswith("there are: q0, q1, q2, q3, q4, q5, q6, q7 and 3 more")


def test_nothing_is_told_of_a_job_without_a_queue() -> None:
    assert not list(warnings_on(case(jobs=[job(of="")])))

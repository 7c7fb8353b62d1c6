"""Contradictions in a case."""

from typing import Any

import pytest

from extender.scenario.faults import faults_of
from tests.unit.scenario.written import case, job

RACKS = [{"name": "t", "levels": [{"label": "rack"}, {"label": "host"}]}]


def in_task(**fields: Any) -> dict[str, Any]:
    return {"jobs": [job(tasks=[{"name": "t", **fields}])]}


IN_G = {"name": "t", "group": "g"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"settings": {"stages": ["allocate", "reclaim", "allocate"]}},
            "settings.stages: allocate is there 2 times; accepted: each once",
        ),
        (
            {"nodePools": [{"name": "p"}, {"name": "p"}]},
            "nodePools: p is there 2 times; accepted: each once",
        ),
        (
            {"topologies": RACKS * 2},
            "topologies: t is there 2 times; accepted: each once",
        ),
        (
            {"topologies": [{"name": "t", "levels": [{"label": "rack"}] * 2}]},
            "topologies[0].levels: rack is there 2 times; accepted: each once",
        ),
        (
            {"budgets": [{"name": "b", "jobs": ["j"]}]},
            "budgets[0]: it says neither; accepted: one of minAvailable and maxUnavailable",
        ),
        (
            {"budgets": [{"name": "b", "jobs": [], "minAvailable": 1, "maxUnavailable": 1}]},
            "budgets[0]: it says both; accepted: one of minAvailable and maxUnavailable",
        ),
        (
            {"budgets": [{"name": "b", "jobs": [], "minAvailable": 1}] * 2},
            "budgets: default/b is there 2 times; accepted: each once",
        ),
        (
            in_task(group="g"),
            "jobs[0].tasks[0].group: the job's group has no children; accepted: none",
        ),
        (
            in_task(state="running"),
            "jobs[0].tasks[0].node: a task that is running needs the node that it is on",
        ),
        (
            in_task(devices=2),
            "jobs[0].tasks[0].devices: 2 without a fraction of a card or gpuMemory;"
            " accepted: 1 (gpu says how many whole cards)",
        ),
        (
            in_task(mig={"1g.5gb": 1, "nvidia.com/mig-1g.5gb": 1}),
            "jobs[0].tasks[0].mig: 1g.5gb; accepted: the resource of a MIG profile, such as"
            " nvidia.com/mig-1g.5gb (all others go in resources)",
        ),
        (
            in_task(nodeAffinity=[{"key": "k", "operator": "Gt", "values": ["many"]}]),
            "jobs[0].tasks[0].nodeAffinity[0].values: many with operator Gt;"
            " accepted: one whole number",
        ),
        (
            in_task(nodeAffinity=[{"key": "k"}]),
            "jobs[0].tasks[0].nodeAffinity[0].values: none with operator In;"
            " accepted: at least one",
        ),
        (
            in_task(tolerations=[{"operator": "Equal"}]),
            "jobs[0].tasks[0].tolerations[0].key: none with operator Equal;"
            " accepted: the key of a taint",
        ),
        (
            {"jobs": [job("a/b")]},
            "jobs[0].name: a/b; accepted: a name without /, for tasks are job/task",
        ),
        (
            {"jobs": [job(namespace="a/b")]},
            "jobs[0].namespace: a/b; accepted: a name without /",
        ),
        (
            {"jobs": [job(tasks=[{"name": "a/b"}])]},
            "jobs[0].tasks[0].name: a/b; accepted: a name without /, for tasks are job/task",
        ),
        (
            {"jobs": [job(n=600_000), job("k", n=600_000)]},
            "jobs: they have 1,200,000 pods together; accepted: up to 1,000,000",
        ),
    ],
)
def test_it_is_reported_with_its_place_and_what_is_accepted(
    more: dict[str, Any], told: str
) -> None:
    assert list(faults_of(case(**more))) == [told]


def test_reason_that_is_none_is_answered_with_those_there_are() -> None:
    (told,) = faults_of(case(jobs=[job()], expect={"jobs": {"j": {"reason": "TooSlow"}}}))
    assert told.startswith("expect.jobs[j].reason: TooSlow is none; accepted: GangIncomplete, ")


def test_groups_nested_without_end_are_reported() -> None:
    group: dict[str, Any] = {"name": "g"}
    for _ in range(20):
        group = {"children": [group]}
    (told,) = faults_of(case(jobs=[job(group=group, tasks=[IN_G])]))
    assert told.endswith("groups are nested more than 16 deep")


def test_fractions_of_several_cards_are_accepted() -> None:
    for asked in ({"gpu": "0.5"}, {"gpuMemory": 1000}):
        assert not list(faults_of(case(**in_task(devices=2, **asked))))

"""Entries that are no cases: the sentence for a value of the wrong kind or size."""

from typing import Any

import pytest

from extender.scenario.errors import ScenarioError
from extender.scenario.load import case_of
from tests.unit.scenario.written import entry, job, node, queue


def why(value: object) -> str:
    with pytest.raises(ScenarioError) as error:
        case_of(value, "f")
    return str(error.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"nodes": [node(gpus=65)]}, "nodes[0].gpus: 65 is not accepted; {} 0 to 64"),
        ({"nodes": [{"name": "n", "gpus": "2"}]}, 'nodes[0].gpus: "2" is not accepted; {} 0 to 64'),
        (
            {"nodes": [node(gpuMemoryMiB=-1)]},
            "nodes[0].gpuMemoryMiB: -1 is not accepted; {} 0 to 1,000,000",
        ),
        (
            {"nodes": [node(maxPods=10**18)]},
            "nodes[0].maxPods: 1000000000000000000 is not accepted; {} 0 to 1,000,000",
        ),
        (
            {"rounds": {"until": 1_000_000}},
            "rounds.until: 1000000 is not accepted; {} 1 to 1,000",
        ),
        ({"rounds": {"after": 1001}}, "rounds.after: 1001 is not accepted; {} 0 to 1,000"),
        (
            {"jobs": [job(gpuMemory=-1)]},
            "jobs[0].tasks[0].gpuMemory: -1 is not accepted; {} 0 to 1,000,000",
        ),
        (
            {"jobs": [job(mig={"a": 1, "b": -1})]},
            "jobs[0].tasks[0].mig[b]: -1 is not accepted; {} 0 to 1,000,000",
        ),
    ],
)
def test_number_out_of_range_is_answered_with_the_range(more: dict[str, Any], told: str) -> None:
    assert why(entry(**more)) == "f: " + told.format("accepted: whole numbers from")


@pytest.mark.parametrize("seconds", [-1, 1e30, float("inf"), float("nan")])
def test_time_out_of_range_is_answered_with_the_range(seconds: float) -> None:
    told = why(entry(jobs=[job(age=seconds)]))
    assert told.endswith("accepted: numbers from 0 to 1,000,000,000")


def test_number_where_a_text_belongs_is_to_be_quoted() -> None:
    told = why(entry(nodes=[node(labels={"zone": 1})]))
    assert told == "f: nodes[0].labels[zone]: 1 is not accepted; accepted: text; put it in quotes"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"nodes": [node(labels={1: "a"})]},
            "nodes[0].labels: a key: Expected `str`, got `int`; accepted: text; put it in quotes",
        ),
        (
            {"queues": [queue(nodeTypes={"batch": {}})]},
            "queues[0].nodeTypes: a key: Invalid enum value 'batch';"
            " accepted: build, inference, interactive, training",
        ),
    ],
)
def test_key_that_is_wrong_is_told_with_its_mapping(more: dict[str, Any], told: str) -> None:
    assert why(entry(**more)) == f"f: {told}"


@pytest.mark.parametrize(
    "more",
    [{"id": ""}, {"nodes": [node("")]}, {"queues": [queue("")]}, {"jobs": [job("")]}],
)
def test_name_that_is_empty_is_told(more: dict[str, Any]) -> None:
    assert why(entry(**more)).endswith('"" is not accepted; accepted: text that is not empty')


def test_what_is_no_mapping_is_told_what_a_case_is() -> None:
    assert why("hello") == 'f: a case is a mapping that has `scenario: v1`, this is "hello"'


def test_long_value_is_cut() -> None:
    assert "1" * 37 + "..." in why(entry(nodes=[{"name": "n", "gpus": "1" * 1000}]))

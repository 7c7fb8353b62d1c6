"""Invalid entries: the message for a value of the wrong kind or size."""

from typing import Any

import pytest

from extender.scenario import amounts
from extender.scenario.checks import wrong_amounts
from extender.scenario.cluster import n_cards
from extender.scenario.errors import ScenarioError
from extender.scenario.load import case_of
from extender.scenario.model.values import Amount
from tests.unit.scenario.written import case, entry, job, node, queue


def why(value: object) -> str:
    with pytest.raises(ScenarioError) as error:
        case_of(value, "f")
    return str(error.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
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


@pytest.mark.parametrize("gpus", [65, "65", -1, 1.5, "half", "500m"])
def test_number_of_cards_is_whole_and_at_most_64(gpus: object) -> None:
    (told,) = wrong_amounts(case(nodes=[{"name": "n", "gpus": gpus}]))
    assert told.endswith(" is not accepted; accepted: whole numbers from 0 to 64")


@pytest.mark.parametrize("gpus", [2, 2.0, "2", "2.0"])
def test_number_of_cards_may_be_quoted(gpus: object) -> None:
    written = case(nodes=[{"name": "n", "gpus": gpus}])
    assert not list(wrong_amounts(written))
    assert n_cards(written.nodes[0]) == 2


@pytest.mark.parametrize("half", [0.5, "0.5", "500m"])
def test_half_a_gpu_may_be_written_as_kubernetes_does(half: Amount) -> None:
    written = case(jobs=[job(gpu=half)], queues=[queue(quota=half)])
    assert not list(wrong_amounts(written))
    assert amounts.gpus(half) == 500


@pytest.mark.parametrize("quota", [-1, "unlimited", "8Gi", "m"])
def test_wrong_quota_is_told_how_no_bound_is_written(quota: object) -> None:
    (told,) = wrong_amounts(case(queues=[queue(quota=quota)]))
    assert told.endswith("such as 4 or 2.5, or null: unlimited")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"settings": {"placement": "spread"}}, "settings.placement: {} a mapping with gpu, cpu"),
        ({"nodePools": [{"name": "a", "match": "x"}]}, "nodePools[0].match: {} a mapping"),
        ({"jobs": [job(nodePools="a")]}, "jobs[0].nodePools: {} a list"),
        ({"jobs": [job(preemptible="no")]}, "jobs[0].preemptible: {} true and false"),
        ({"rounds": 2}, "rounds: {} a mapping with until, after"),
        (
            {"simulate": {"runs": {"j": "10m"}}},
            "simulate.runs[j]: {} numbers from 0 to 1,000,000,000, or a list of 2",
        ),
        ({"simulate": {"days": "7"}}, "simulate.days: {} numbers above 0 to 3,660"),
        ({"simulate": {"seed": "x"}}, "simulate.seed: {} whole numbers"),
        (
            {"simulate": {"atMost": {"total.moves": "2"}}},
            "simulate.atMost[total.moves]: {} numbers",
        ),
    ],
)
def test_wrong_shape_is_answered_with_the_right_one(more: dict[str, Any], told: str) -> None:
    place, _, shape = told.partition(": {} ")
    assert why(entry(**more)).startswith(f"f: {place}: ")
    assert why(entry(**more)).endswith(f" is not accepted; accepted: {shape}")


def test_half_life_of_a_month_is_accepted() -> None:
    assert case(settings={"usageHalfLife": 2_592_000}).settings.usage_half_life == 2_592_000


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
def test_key_that_is_wrong_is_reported_with_its_mapping(more: dict[str, Any], told: str) -> None:
    assert why(entry(**more)) == f"f: {told}"


@pytest.mark.parametrize(
    "more",
    [{"id": ""}, {"nodes": [node("")]}, {"queues": [queue("")]}, {"jobs": [job("")]}],
)
def test_name_that_is_empty_is_reported(more: dict[str, Any]) -> None:
    assert why(entry(**more)).endswith('"" is not accepted; accepted: text that is not empty')


def test_what_is_no_mapping_is_told_what_a_case_is() -> None:
    assert why("hello") == 'f: a case is a mapping that has `scenario: v1`, this is "hello"'


def test_long_value_is_cut() -> None:
    assert "1" * 37 + "..." in why(entry(nodes=[{"name": "n", "maxPods": "1" * 1000}]))

"""Which cluster a workload is nominated to, given the answers of all."""

import pytest

from extender.dispatch.ranking import Heard, choose
from extender.view.answers import Prospect, Prospects


def says(cluster: str, state: Prospects = "starts", **answer: object) -> Heard:
    return Heard(cluster, Prospect(workload="ns/train", state=state, **answer))  # type: ignore[arg-type]


WITHIN = says("within", is_within_quota=True)
ABOVE = says("above")
WITHIN_STOPS = says("within-stops", is_within_quota=True, stops=3)
WITHIN_MOVES = says("within-moves", is_within_quota=True, moves=4)
ABOVE_STOPS = says("above-stops", stops=1)
SOON = says("soon", "waits", earliest="2026-01-01T01:00:00Z")
LATE = says("late", "waits", earliest="2026-01-02T00:00:00Z")
UNKNOWN = says("unknown", "waits")
NEVER = says("never", "never")
SILENT = Heard("silent", silence="no answer within 15 s")
#: From the best to the worst that may be nominated.
ORDER = [WITHIN, ABOVE, WITHIN_STOPS, WITHIN_MOVES, ABOVE_STOPS, SOON, LATE, UNKNOWN]


@pytest.mark.parametrize("first", range(len(ORDER) - 1))
def test_the_better_answer_is_chosen_wherever_it_stands(first: int) -> None:
    better, *worse = ORDER[first:]
    for other in worse:
        assert choose([other, better]) == [better.cluster]
        assert choose([NEVER, better, SILENT, other]) == [better.cluster]


def test_of_equal_answers_the_cluster_that_is_listed_first_is_chosen() -> None:
    assert choose([says("b"), says("a")]) == ["b"]


def test_a_cluster_that_can_never_run_it_or_is_silent_is_not_chosen() -> None:
    assert choose([NEVER, SILENT]) == []
    assert choose([]) == []


def test_clusters_that_let_a_nomination_lapse_are_passed_over_while_there_is_another() -> None:
    assert choose([WITHIN, UNKNOWN], ["within"]) == ["unknown"]
    assert choose([WITHIN, UNKNOWN], ["within", "unknown"]) == ["within"]
    assert choose([WITHIN, NEVER], ["within"]) == ["within"]


def test_work_without_gpus_goes_to_every_cluster_that_answers() -> None:
    assert choose([says("a", "not ours"), SILENT, says("b", "not ours")]) == ["a", "b"]


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (WITHIN, "within: starts now, within quota, stops nothing"),
        (says("b", stops=2, moves=1), "b: starts now, above quota, stops 2 pods and moves 1 pod"),
        (ABOVE_STOPS, "above-stops: starts now, above quota, stops 1 pod"),
        (
            says("w", "waits", reason="OverFairShare", message="no", earliest="2026-01-01T01:00Z"),
            "w: waits, not before 2026-01-01T01:00Z (OverFairShare: no)",
        ),
        (says("n", "never", reason="UnknownProject", message="none"), "n: can't run (Unknown"),
        (SILENT, "silent: gave no answer: no answer within 15 s"),
        (
            says("c", "not ours", message="none of its pods requests GPUs"),
            "c: none of its pods requests",
        ),
        (says("l", "never", message="x" * 1000), "l: can't run (xxx"),
    ],
)
def test_each_answer_is_one_phrase(heard: Heard, told: str) -> None:
    assert str(heard).startswith(told)
    assert len(str(heard)) < 450

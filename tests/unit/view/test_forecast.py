"""When a workload starts: promises, forecasts, and cases without either."""

from typing import Any

import pytest

from extender.state.model import Constraints
from extender.view import ahead
from extender.view.ahead import Ahead
from extender.view.answers import Forecast
from extender.view.forecast import HitRate, Outlook
from extender.view.forecaster import look_ahead
from extender.view.line import as_time, as_unix_s
from extender.view.picture import Picture
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster


def two_projects() -> Cluster:
    """Two nodes of 4: project a holds 2 of its quota of 4, and b holds 6 with a quota of 4."""
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.node("n1", gpus=4)
    cluster.project("a", quota=4)
    cluster.project("b", quota=4)
    return cluster


def full(**given: Any) -> Cluster:
    """The cluster with all GPUs held for another 100 s or more; `given` replaces run times."""
    cluster = two_projects()
    cluster.job("a-run", "a", gpus=1, pods=2, on="n0", min=1, run=given.get("a", 160))
    cluster.job("b-run", "b", gpus=1, pods=6, on=["n0"] * 2 + ["n1"] * 4, min=1,
                run=given.get("b", 660), **given.get("b_job", {}))  # fmt: skip
    return cluster


def said(cluster: Cluster, name: str) -> Forecast:
    picture = Picture(cluster.snapshot())
    return look_ahead(picture).of(picture.snapshot.workloads[f"ns/{name}"])


def span(forecast: Forecast) -> tuple[int, int]:
    return as_unix_s(forecast.earliest) - NOW_S, as_unix_s(forecast.latest) - NOW_S


def test_work_within_quota_is_promised_a_place_once_victims_have_ended() -> None:
    cluster = full()
    cluster.job("wait", "a", gpus=2)
    found = said(cluster, "wait")
    assert found.word == "promised"
    # 30 s of grace, and a minute to start.
    assert span(found) == (0, 90)


def test_a_budget_that_holds_the_victims_back_is_part_of_the_promise() -> None:
    cluster = full(b_job={"budgets": ("ns/keep",)})
    cluster.budgets["ns/keep"] = 0
    cluster.job("wait", "a", gpus=2)
    found = said(cluster, "wait")
    assert (found.word, "disruption budgets" in found.message) == ("promised", True)
    assert span(found) == (0, 90 + 120)


def test_no_more_is_promised_than_the_quota_has() -> None:
    cluster = full()
    for name in ("first", "second"):
        cluster.job(name, "a", gpus=2, run=600)
    words = [said(cluster, name).word for name in ("first", "second")]
    assert words == ["promised", "no forecast"]


def test_nothing_is_promised_above_the_quota_of_a_department() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=4)
    cluster.department("d", quota=2)
    cluster.project("a", quota=4, department="d")
    cluster.job("run", "a", gpus=2, on="n0", run=600)
    cluster.job("wait", "a", gpus=2)
    assert said(cluster, "wait").word != "promised"


def test_work_above_quota_is_reported_before_when_it_does_not_start() -> None:
    cluster = full(a=1060)
    cluster.job("wait", "b", gpus=1, run=60)
    found = said(cluster, "wait")
    assert (found.word, found.latest) == ("no forecast", "")
    # b-run ends first, after 600 s, seen at the next step of the run: 5 % and a minute less.
    assert as_unix_s(found.earliest) - NOW_S in range(600 - 30 - 60, 631 - 31 - 60)


def test_work_that_has_its_place_above_quota_has_a_forecast_whatever_is_stated() -> None:
    cluster = two_projects()
    cluster.job("b-run", "b", gpus=4, on="n0")
    cluster.job("wait", "b", gpus=1)
    found = said(cluster, "wait")
    assert (found.word, span(found)) == ("forecast", (0, 60))


def test_a_run_ahead_puts_what_waits_one_after_the_other() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", quota=2)
    cluster.job("run", "a", gpus=2, on="n0", ran=0, run=600)
    cluster.job("first", "a", gpus=2, run=1200)
    cluster.job("second", "a", gpus=1, run=60)
    cluster.job("third", "a", gpus=1, run=60)
    starts = Ahead(Picture(cluster.snapshot())).run()
    after = {key: start_s - NOW_S for key, start_s in starts.items()}
    assert after["ns/first"] in range(600, 631)
    assert after["ns/second"] == after["ns/third"]
    assert after["ns/second"] in range(1800, 1861)


def test_a_run_ahead_leaves_the_picture_as_it_was() -> None:
    cluster = full()
    cluster.job("wait", "b", gpus=1, run=60)
    picture = Picture(cluster.snapshot())
    before = picture.snapshot.nodes.cards.card_free.tolist(), dict(picture.snapshot.workloads)
    Ahead(picture).run()
    after = picture.snapshot.nodes.cards.card_free.tolist(), dict(picture.snapshot.workloads)
    assert (before, picture.snapshot.now_s) == (after, NOW_S)


def test_nothing_is_said_where_other_work_does_not_say_how_long_it_runs() -> None:
    cluster = full(a=None)
    cluster.job("wait", "b", gpus=1, run=60)
    found = said(cluster, "wait")
    assert (found.word, found.earliest) == ("no forecast", "")
    assert "pods with 2 GPUs" in found.message


def test_work_that_starts_later_need_not_say_how_long_it_runs() -> None:
    cluster = full()
    cluster.job("wait", "b", gpus=1, run=60)
    cluster.job("behind", "b", gpus=6)
    found = said(cluster, "wait")
    assert found.earliest
    assert "how much later" in found.message


def test_work_that_starts_before_has_to_say_how_long_it_runs() -> None:
    cluster = full()
    cluster.job("first", "b", gpus=1, pods=6)
    cluster.job("wait", "b", gpus=4, run=60)
    found = said(cluster, "wait")
    assert (found.word, found.earliest) == ("no forecast", "")
    assert "pods with 6 GPUs that run in its node pools, or start there before it" in found.message


def test_requests_in_mib_count_towards_quota_and_unstated_run_times() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", quota="0.5")
    cluster.job("run", "a", mib=8192, on="n0", cards=[0])
    cluster.job("wait", "a", mib=4096)
    assert said(cluster, "wait").word == "forecast"
    cluster.job("fill", "a", gpus=1, on="n0", cards=[1], run=600)
    cluster.job("whole", "a", gpus=1, run=600)
    assert "pods with 0.5 GPUs" in said(cluster, "whole").message


def test_work_that_runs_longer_than_it_stated_counts_as_unstated() -> None:
    cluster = full(a=30)
    cluster.job("wait", "b", gpus=1, run=60)
    assert "have run longer" in said(cluster, "wait").message


def test_inference_need_not_say_when_it_ends() -> None:
    cluster = two_projects()
    cluster.job("serve", "a", gpus=1, pods=4, on="n0", min=1, kind="inference")
    cluster.job("b-run", "b", gpus=4, on="n1", run=600)
    cluster.job("wait", "b", gpus=1, run=60)
    assert said(cluster, "wait").earliest


def test_work_that_can_never_start_or_starts_after_the_horizon_is_reported() -> None:
    cluster = full(b=200_000, a=200_000)
    cluster.job("huge", "a", gpus=8, run=60)
    cluster.job("late", "b", gpus=1, run=60)
    assert "never" in said(cluster, "huge").message
    assert "not within 24 hours" in said(cluster, "late").message


def test_what_is_not_considered_is_told_with_the_reason() -> None:
    cluster = full()
    cluster.job("wait", "b", gpus=1, pods=1, min=3, run=60)
    message = "it gets no place until the cause of GangIncomplete is removed"
    assert said(cluster, "wait").message == message


def test_work_that_no_node_matches_is_not_told_of_the_run_times_of_others() -> None:
    cluster = two_projects()
    cluster.job("endless", "b", gpus=1, on="n0")
    cluster.job(
        "wait", "a", gpus=1, constraints=Constraints(node_selector=(("gpu", "H200"),)), run=60
    )
    message = "it gets no place until the cause of NoMatchingNode is removed"
    assert said(cluster, "wait").message == message


def test_work_that_came_after_the_look_has_no_forecast_yet() -> None:
    cluster = full()
    cluster.job("wait", "b", gpus=1, run=60)
    picture = Picture(cluster.snapshot())
    foresight = look_ahead(picture)
    assert foresight.outlook is not None
    old = type(foresight)(picture, Outlook(NOW_S, {}, frozenset()))
    assert "ask again" in old.of(picture.snapshot.workloads["ns/wait"]).message


def test_the_first_forecast_counts_and_is_reported_with_the_next_one() -> None:
    waits, runs = full(), full()
    waits.job("wait", "b", gpus=1)
    runs.job("wait", "b", gpus=1, on="n0", cards=[0], ran=0)
    hits = HitRate()
    key, later = "ns/wait", Picture(runs.snapshot())
    first = Forecast("forecast", as_time(NOW_S - 100), as_time(NOW_S + 100))
    missed = Forecast("forecast", as_time(NOW_S + 50), as_time(NOW_S + 100))
    for given, has_held in ((first, True), (missed, False)):
        before = Picture(waits.snapshot())
        hits.give(before.snapshot.workloads[key], given)
        hits.give(before.snapshot.workloads[key], first)
        assert list(hits.review(before)) == []
        assert list(hits.review(later)) == [("forecast", has_held)]
    told = hits.tell(Forecast("forecast"), "b")
    assert (told.checked, told.held) == (2, 1)
    assert hits.tell(Forecast("promised"), "b").checked == 0


def test_a_forecast_is_missed_once_it_is_over_and_forgotten_with_its_pods() -> None:
    cluster = full()
    cluster.job("wait", "b", gpus=1)
    cluster.job("other", "b", gpus=1)
    picture = Picture(cluster.snapshot())
    hits = HitRate()
    over = Forecast("forecast", as_time(NOW_S - 100), as_time(NOW_S - 1))
    open_ = Forecast("forecast", as_time(NOW_S), as_time(NOW_S + 100))
    hits.give(picture.snapshot.workloads["ns/wait"], over)
    hits.give(picture.snapshot.workloads["ns/other"], open_)
    assert list(hits.review(picture)) == [("forecast", False)]
    del cluster.workloads["ns/other"]
    assert list(hits.review(Picture(cluster.snapshot()))) == []
    assert hits.tell(Forecast("forecast"), "b").checked == 1


def test_a_run_that_is_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST_DECISIONS", 1)
    cluster = full()
    cluster.job("wait", "b", gpus=1, run=60)
    assert "does not reach its start" in said(cluster, "wait").message


def test_what_was_said_not_to_start_before_a_time_is_missed_only_by_an_earlier_start() -> None:
    waits, runs = full(), full()
    waits.job("wait", "b", gpus=1)
    runs.job("wait", "b", gpus=1, on="n0", cards=[0], ran=0)
    before, later = Picture(waits.snapshot()), Picture(runs.snapshot())
    for earliest_s, has_held in ((NOW_S - 1, True), (NOW_S + 10, False)):
        hits = HitRate()
        given = Forecast("no forecast", as_time(earliest_s))
        hits.give(before.snapshot.workloads["ns/wait"], given)
        assert list(hits.review(before)) == []
        assert list(hits.review(later)) == [("no forecast", has_held)]

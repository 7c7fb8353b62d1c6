"""Long runs: arrivals, completed and lost work, and the figures."""

from typing import Any

import pytest

from extender.scenario.errors import ScenarioError
from extender.scenario.faults import faults_of
from extender.scenario.load import case_of
from extender.scenario.longrun.arrivals import arrival_times
from extender.scenario.longrun.report import SimulationReport, misses
from extender.scenario.longrun.simulate import simulate
from extender.scenario.longrun.work import TaskProgress
from tests.unit.scenario.written import Entry, entry, job, node, queue


def line(name: str = "j", of: str = "a", gpu: Any = 1, **when: Any) -> Entry:
    return {"job": job(name, of, gpu=gpu), **when}


def run(days: float = 1, **more: Any) -> SimulationReport:
    lines = more.pop("arrivals", [])
    section = {"days": days, "arrivals": lines} | more.pop("simulate", {})
    return simulate(case_of(entry(simulate=section, **more), "test"))


def test_jobs_come_when_the_file_says_and_end_when_their_work_is_done() -> None:
    report = run(nodes=[node(gpus=1)], arrivals=[line(at=3600, every=7200, count=3, run=1800)])
    (sums,) = report.queues.values()
    assert (sums.arrived, sums.ended) == (3, 3)
    assert sums.held == 3 * 1800 * 1000
    assert report.came_to_rest


def test_jobs_come_at_decimal_intervals() -> None:
    section = {"arrivals": [line(at=0, every=0.5, count=5)]}
    simulation = case_of(entry(simulate=section), "test").simulate
    assert list(arrival_times(simulation, 0, end_s=60)) == [0, 0, 1, 1, 2]


def test_what_holds_less_than_it_is_owed_is_deprived_of_the_rest() -> None:
    # Non-preemptible work within b's quota holds the one card that a is owed half of.
    quiet = job("old", "b", on="n0", preemptible=False)
    report = run(
        nodes=[node(gpus=1)],
        queues=[queue("a", quota=1), queue("b", quota=1)],
        jobs=[quiet, job("new", "a")],
    )
    a = report.as_json()["queues"]["a"]
    assert (a["owedGpuHours"], a["heldGpuHours"], a["deprivedGpuHours"]) == (12, 0, 12)
    assert (a["longestWithoutHours"], a["longestWaitHours"]) == (24, 24.017)


def test_an_eviction_loses_what_was_not_saved() -> None:
    def lost(usual_s: int = 0, **saves: Any) -> int:
        report = run(
            nodes=[node(gpus=1)],
            queues=[queue("a", quota=1), queue("b")],
            jobs=[job("old", "b", on="n0", **saves)],
            arrivals=[line(at=5000, run=600)],
            settings={"checkpoint": usual_s},
        )
        assert report.queues["b"].evictions == 1
        return report.queues["b"].lost

    assert lost() == 5_000_000
    assert lost(checkpoint=1800) == 1_400_000
    assert lost(usual_s=1800) == 1_400_000
    assert lost(usual_s=1800, checkpoint=0) == 5_000_000
    # What it did before the simulation began was not held in it, and is not lost in it.
    assert lost(runningFor=1000) == 5_000_000


def test_a_task_that_goes_on_needs_its_time_to_load_and_ends_so_much_later() -> None:
    report = run(
        nodes=[node(gpus=1)],
        queues=[queue("a", quota=1), queue("b")],
        jobs=[job("old", "b", on="n0", checkpoint=600)],
        arrivals=[line(at=1200, run=1000)],
        simulate={"restart": 60, "runs": {"old": 3000}},
    )
    b = report.queues["b"]
    assert (b.ended, b.evictions) == (1, 1)
    assert b.held == (3000 + 60) * 1000
    assert b.lost == 60 * 1000


def test_no_more_is_lost_for_loading_than_was_held() -> None:
    work = TaskProgress(600, restart_s=60)
    work.start(0)
    assert work.stop(100) == 100
    work.start(200)
    # Its gang ends while it still loads.
    assert work.finish(210) == 10


def test_what_a_job_held_for_another_project_is_not_lost_by_its_new_one() -> None:
    report = run(
        nodes=[node(gpus=1)],
        queues=[queue("a", quota=1), queue("b"), queue("c")],
        jobs=[job("old", "b", on="n0")],
        arrivals=[line(at=5000, run=600)],
        simulate={"events": [{"at": 4000, "set": {"old": {"queue": "c"}}}]},
    )
    assert (report.queues["b"].lost, report.queues["b"].held) == (0, 4_000_000)
    assert report.queues["c"].evictions == 1
    assert report.queues["c"].lost == 1_000_000


def test_nothing_is_owed_to_non_preemptible_work_beyond_quota() -> None:
    report = run(
        days=0.1,
        nodes=[node(gpus=4)],
        queues=[queue("a", quota=1)],
        jobs=[job("firm", "a", n=3, preemptible=False, group={"min": 1})],
    )
    a = report.as_json()["queues"]["a"]
    assert (a["owedGpuHours"], a["heldGpuHours"], a["deprivedGpuHours"]) == (2.4, 2.4, 0)


def test_kept_jobs_are_replaced_as_they_end() -> None:
    report = run(nodes=[node(gpus=2)], arrivals=[line(keep=2, run=7200)])
    assert report.queues["a"].ended == 2 * 11
    assert report.queues["a"].arrived == 2 * 12


def test_what_is_drawn_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    def told(seed: int) -> dict[str, Any]:
        lines = [
            line("j", perDay=50, run=[600, 7200], gpu=2)
            | {"gpu": [1, 2], "user": ["ann", "ben"], "priority": [50, 75]}
        ]
        return run(arrivals=lines, simulate={"seed": seed}).as_json()

    assert told(1) == told(1)
    assert told(1) != told(2)
    assert set(told(1)["users"]) == {"a/ann", "a/ben"}
    assert 25 < told(1)["total"]["arrived"] < 80


def test_a_gang_ends_whole_and_independent_tasks_one_by_one() -> None:
    gang = {"job": job("g", n=2), "at": 0, "run": 600}
    trials = {"job": job("t", n=3, group={"min": 1}), "at": 0, "run": 600}
    report = run(nodes=[node(gpus=2)], arrivals=[gang, trials])
    assert report.queues["a"].ended == 2
    assert report.queues["a"].held == (2 + 3) * 600 * 1000


def test_events_end_and_change_jobs() -> None:
    report = run(
        nodes=[node(gpus=1)],
        jobs=[job("x", on="n0"), job("y"), job("z")],
        simulate={
            "events": [{"at": 600, "set": {"z": {"priority": 75}}}, {"at": 1200, "finish": ["z"]}]
        },
    )
    a = report.queues["a"]
    assert (a.evictions, a.ended, a.waiting) == (1, 1, 1)
    assert a.lost == 600 * 1000


def test_repeated_evictions_and_those_without_outside_change_are_counted() -> None:
    report = run(
        nodes=[node(gpus=1)],
        queues=[queue("a", quota=1), queue("b")],
        jobs=[job("old", "b", on="n0")],
        arrivals=[line(at=600, every=3600, count=3, run=600)],
    )
    b = report.queues["b"]
    assert (b.evictions, b.repeated) == (3, 2)
    assert report.evictions_without_change == 0
    assert report.evicted_and_back == 0


def test_a_bar_that_is_missed_is_reported_and_so_is_one_of_no_figure() -> None:
    told = run(nodes=[node(gpus=1)], arrivals=[line(at=0, run=600)]).as_json()
    assert not list(misses(told, {"total.lostPercent": 0}, {"queues.a.ended": 1}))
    assert list(misses(told, {"queues.*.ended": 0}, {"queues.b.ended": 1})) == [
        "queues.a.ended: 1, expected at most 0",
        "queues.b.ended: there is no such figure",
    ]


def test_bars_name_users_by_their_project_and_every_user_by_a_star() -> None:
    lines = [line(user, at=0, run=hours * 3600) for user, hours in (("ann", 3), ("ben", 6))]
    for each, user in zip(lines, ("ann", "ben"), strict=True):
        each["job"]["user"] = user
    told = run(nodes=[node(gpus=2)], arrivals=lines).as_json()
    assert not list(misses(told, {"users.a/ann.heldGpuHours": 3}, {"users.*.heldGpuHours": 3}))
    assert list(misses(told, {"users.*.heldGpuHours": 5}, {})) == [
        "users.a/ben.heldGpuHours: 6, expected at most 5"
    ]


def test_an_event_about_a_job_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScenarioError, match="finish: there is no job q"):
        run(simulate={"events": [{"at": 5, "finish": ["q"]}]})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"run": 5}, "accepted: one of at, perDay and keep"),
        ({"at": 1, "keep": 1}, "accepted: one of at, perDay and keep"),
        ({"at": 1, "count": 2}, "count: 2 without every"),
        ({"at": 1, "run": [9, 3]}, "accepted: the shorter time first"),
        ({"keep": 1, "run": 0}, "run: 0 with keep"),
        ({"at": 1, "job": job(on="n0")}, "tasks[0].state: running; accepted: pending"),
    ],
)
def test_arrivals_that_cannot_be_meant_are_refused(wrong: Entry, why: str) -> None:
    made = case_of(entry(simulate={"arrivals": [line() | wrong]}), "test")
    assert why in " ".join(faults_of(made))


def test_the_work_of_a_job_that_is_not_there_is_refused() -> None:
    made = case_of(entry(simulate={"runs": {"q": 5}}), "test")
    assert list(faults_of(made)) == ["simulate.runs[q]: there is no such job in jobs"]


def test_the_shorter_of_two_times_comes_first() -> None:
    written = entry(jobs=[job("j")], simulate={"runs": {"j": [600, 300]}})
    (told,) = faults_of(case_of(written, "test"))
    assert told == "simulate.runs[j]: [600, 300]; accepted: the shorter time first"


def test_budget_that_is_used_up_during_the_run_ends_the_borrowing() -> None:
    # One GPU is its quota, and jobs of an hour keep it at two until 10 GPU-hours are used.
    report = run(
        nodes=[node(gpus=4)],
        queues=[queue("a", gpu={"quota": 1, "gpuHoursPerMonth": 10})],
        arrivals=[{"keep": 2, "run": 3600, "job": job("j", "a", gpu=1)}],
    )
    a = report.as_json()["queues"]["a"]
    # Five hours with two, and then with one.
    assert a["heldGpuHours"] == pytest.approx(5 * 2 + 19, abs=0.1)
    assert a["owedGpuHours"] == pytest.approx(a["heldGpuHours"], abs=0.1)


def test_nodes_that_are_emptied_stay_empty_and_cost_what_the_moves_lose() -> None:
    def told(**settings: Any) -> dict[str, Any]:
        report = run(
            settings=settings,
            nodes=[node("n0", gpus=8), node("n1", gpus=8), node("n2", gpus=8)],
            queues=[queue("a", quota=24)],
            jobs=[job(f"j{at}", "a", on=f"n{at}", gpu=2, checkpoint=600) for at in range(3)],
        )
        figures: dict[str, Any] = report.as_json()["total"]
        return figures

    kept, emptied = told(), told(consolidateAfter=1800)
    assert (kept["emptyNodeHours"], kept["moves"]) == (0, 0)
    assert emptied["moves"] == 2
    assert 46 < emptied["emptyNodeHours"] < 48
    assert 0 < emptied["lostGpuHours"] < 1

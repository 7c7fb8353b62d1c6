"""Allocations of projects over hours and days of constant demand, and the lost work."""

from itertools import pairwise

import pytest

from tests.support.long_runs import HOUR_S, LongRun, Source, equal_projects
from tests.support.thorough import every

_LONG_S = (2 * HOUR_S, 4 * HOUR_S)


def projects(n: int) -> list[str]:
    return [f"q{at}" for at in range(n)]


def largest_difference(run: LongRun, weights: list[int]) -> float:
    """How far a source is from its part, at most, as a part of that."""
    parts = run.parts().values()
    fair = [weight / sum(weights) for weight in weights]
    return max(abs(part / due - 1) for part, due in zip(parts, fair, strict=True))


class TestEqualProjects:
    """Whole GPUs do not divide evenly; over a day they do."""

    @pytest.mark.parametrize(("n", "gpus"), every(2, [(10, 5), (3, 4), (7, 3)]))
    def test_they_have_equal_parts_of_a_day_whatever_the_number_of_gpus(
        self, n: int, gpus: int
    ) -> None:
        names = projects(n)
        sources = [Source(name) for name in names]
        run = LongRun({"n": gpus}, equal_projects(names), sources, step_s=120)
        assert largest_difference(run.run(24), [1] * n) < 0.01
        for starts in run.started_s.values():
            assert max(after - before for before, after in pairwise(starts)) <= 2 * HOUR_S
        assert not run.evictions

    def test_users_of_a_project_have_equal_parts_whatever_their_names(self) -> None:
        names = ["anna", "ben", "cem", "dora", "emil", "zoe"]
        sources = [Source("p", user=name) for name in names]
        run = LongRun({"n": 4}, equal_projects(["p"]), sources, step_s=120)
        assert largest_difference(run.run(24), [1] * 6) < 0.01
        assert not run.evictions


class TestPastUse:
    """Shares that past use bends decide what starts, and stop next to nothing."""

    @pytest.mark.parametrize("half_life_h", every(2, [1, 168]))
    @pytest.mark.parametrize(
        ("weights", "gpus", "lost"),
        every(
            2,
            [
                ([1] * 10, 5, 0),
                ([1, 1, 1], 4, 0.0005),
                ([1, 2, 3], 8, 0.004),
                ([2, 1, 1], 5, 0.0005),
            ],
        ),
        ids=["10 on 5", "3 on 4", "1:2:3 on 8", "2:1:1 on 5"],
    )
    def test_each_project_has_its_part_of_a_week_and_hardly_any_work_is_lost(
        self, weights: list[int], gpus: int, lost: float, half_life_h: int
    ) -> None:
        names = projects(len(weights))
        run = LongRun(
            {"n": gpus},
            equal_projects(names, weights),
            [Source(name, runs_s=_LONG_S) for name in names],
            half_life_s=half_life_h * HOUR_S,
            step_s=600,
        ).run(168)
        assert largest_difference(run, weights) < 0.02
        assert run.lost_part() <= lost
        # Every job ends: what runs at the end of the week has begun less than four hours ago.
        assert sum(run.ended.values()) > 0.9 * gpus * 168 / 3


class TestLargerThanTheShare:
    """A pod that its queue's share could never hold has its turn."""

    @pytest.mark.parametrize("gpus", [5, 8])
    def test_it_starts_within_patience_and_the_longest_run_beside_it(self, gpus: int) -> None:
        run = LongRun({"n": 8}, equal_projects(["a", "b"]), [Source("a")]).run(1)
        run.sources.append(Source("b", gpus, (HOUR_S, 2 * HOUR_S)))
        run.run(7)
        # One hour of patience, 20 minutes of the longest run of a, and some cycles.
        (first_s, *_) = run.started_s["b"]
        assert first_s - HOUR_S <= HOUR_S + 1200 + 300
        assert not run.evictions["b"]

    def test_both_queues_have_their_parts_over_days(self) -> None:
        sources = [Source("a"), Source("b", 5, (HOUR_S, 2 * HOUR_S))]
        run = LongRun({"n": 8}, equal_projects(["a", "b"]), sources, step_s=120).run(72)
        assert largest_difference(run, [1, 1]) < 0.1
        assert run.lost_part() < 0.001

    def test_jobs_submitted_one_by_one_have_less_than_their_part(self) -> None:
        sources = [Source("a"), Source("b", 5, (HOUR_S, 2 * HOUR_S), is_one_by_one=True)]
        run = LongRun({"n": 8}, equal_projects(["a", "b"]), sources).run(48)
        assert 0.33 < run.parts()["b"] < 0.37


def test_places_kept_for_work_that_would_lift_its_queue_above_its_share_cost_no_work() -> None:
    """Pods of 1, 2 and 4 GPUs: the second pod of 4 is above the share of its queue, 5.3."""
    sources = [Source(f"q{at}", gpus, _LONG_S) for at, gpus in enumerate((1, 2, 4))]
    run = LongRun(
        {"n": 8, "m": 8},
        equal_projects(projects(3)),
        sources,
        half_life_s=24 * HOUR_S,
        step_s=300,
    ).run(60)
    assert run.lost_part() <= 0.02

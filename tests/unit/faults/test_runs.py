"""Runs add up in a file, so that several runs reach counts that one cannot."""

from pathlib import Path

from tests.faults.crashes import POINTS
from tests.faults.kinds import CUTS
from tests.faults.runs import CRASH_POINTS, append_run, sum_lines
from tests.faults.tally import Tally
from tests.support.auditor import Counts, Verdict


def tally(revisions: int, **crashes: int) -> Tally:
    found = Tally(())
    found.add(Verdict(Counts(revisions=revisions, binds=2), []))
    found.crashes.update(crashes)
    found.counted[CUTS] = 15
    return found


def test_the_counts_of_all_runs_and_their_seeds_are_printed(tmp_path: Path) -> None:
    file = tmp_path / "build" / "faults.jsonl"
    append_run(file, 3, tally(600, one=2, two=1))
    append_run(file, 4, tally(500, two=4))
    seeds, counts, crashes, failures = sum_lines(file)
    assert seeds.endswith("seeds 3, 4")
    assert "1100 of 1000000 revisions, 4 of 50000 Bindings, 7 of 1340 crashes" in counts
    assert "30 of 500 cuts" in counts
    assert crashes == f"  crashes at 2 of {CRASH_POINTS} points, at each 2 or more"
    assert failures == "  0 safety violations, 0 liveness misses"


def test_a_miss_stays_in_the_sum(tmp_path: Path) -> None:
    missed = tally(1)
    missed.misses.append("seed 1, kill serve: a new pod is not bound")
    append_run(tmp_path / "faults.jsonl", 1, missed)
    append_run(tmp_path / "faults.jsonl", 2, tally(1))
    assert [*sum_lines(tmp_path / "faults.jsonl")][-1].endswith(", 1 liveness misses")


def test_there_are_as_many_points_as_are_to_be_reached() -> None:
    assert len(POINTS) >= CRASH_POINTS

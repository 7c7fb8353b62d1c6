"""A run passes only when it saw enough, and nothing was violated or missed."""

from tests.faults.tally import Tally
from tests.support.auditor import Counts, Verdict, Violation


def enough() -> Tally:
    """What a run that passes has seen."""
    tally = Tally(("kill serve", "restore"))
    tally.done.update(("kill serve", "restore"))
    tally.n_checked = 1
    tally.add(Verdict(Counts(revisions=900, binds=30, evictions=4), []))
    return tally


def test_a_run_that_saw_enough_and_nothing_wrong_passes() -> None:
    tally = enough()
    assert tally.is_passed
    assert list(tally.lines())[-1] == "safety violations: 0, liveness misses: 0: passed"


def test_a_kind_of_fault_that_was_not_exercised_fails_the_run() -> None:
    tally = enough()
    del tally.done["restore"]
    assert not tally.is_passed
    assert "NOT PROVEN no fault of kind 'restore'" in tally.lines()


def test_counts_of_zero_fail_the_run() -> None:
    for what in ("revisions", "binds", "evictions", "n_checked"):
        tally = enough()
        setattr(tally, what, 0)
        assert not tally.is_passed, what


def test_a_violation_a_miss_and_a_hole_in_the_audit_fail_the_run() -> None:
    violated, missed, holed = enough(), enough(), enough()
    violated.add(Verdict(Counts(), [Violation("A1", 7, "GpuNode n1", "2000 milli on card 0")]))
    missed.misses.append("seed 1, kill serve: a new pod is not bound")
    holed.add(Verdict(Counts(), [], faults=["etcd compacted"]))
    for tally in (violated, missed, holed):
        assert not tally.is_passed
        assert list(tally.lines())[-1].endswith("FAILED")


def test_counts_of_several_audits_add_up() -> None:
    tally = enough()
    tally.add(Verdict(Counts(revisions=100, binds=5, evictions=1), []))
    assert (tally.revisions, tally.binds, tally.evictions) == (1000, 35, 5)

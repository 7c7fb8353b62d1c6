"""Cases carried over from other schedulers' tests, where the shared material is at hand."""

from pathlib import Path

import pytest

from extender.scenario.model.case import Case
from extender.scenario.run import run_case
from tests.scenarios.judge.verdict import judge, judge_or_expect_failure
from tests.scenarios.listed import disagreements, not_yet, shared_cases

KAI = shared_cases("kai")
DETERMINED = shared_cases("determined")
REVIEW = shared_cases("review")
#: Of the cases that the format can say and that do not contradict themselves.
LEAST_AGREED = 0.97


@pytest.mark.parametrize("case", KAI, ids=lambda case: case.id)
def test_kai(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", DETERMINED, ids=lambda case: case.id)
def test_determined(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", REVIEW, ids=lambda case: case.id)
def test_review(case: Case) -> None:
    judge_or_expect_failure(case)


def test_shared_cases_were_found(shared: Path) -> None:
    assert KAI, f"{shared / 'scenarios'} has no cases"
    assert DETERMINED
    assert len(REVIEW) >= 87


def test_we_agree_with_nearly_all_of_kai(shared: Path) -> None:
    counted = [c for c in KAI if not {"out-of-format", "suspicious"} & set(c.tags)]
    agreed = [case for case in counted if case.id not in disagreements()]
    assert shared.is_dir()
    assert len(agreed) >= LEAST_AGREED * len(counted)


def test_every_disagreement_is_about_a_case_that_there_is(shared: Path) -> None:
    ids = {case.id for case in (*KAI, *DETERMINED, *REVIEW)}
    assert shared.is_dir()
    assert set(disagreements()) <= ids


def test_every_rule_that_is_missing_is_about_a_case_that_there_is(shared: Path) -> None:
    assert shared.is_dir()
    assert {id_ for id_ in not_yet() if id_.startswith("review/")} <= {case.id for case in REVIEW}


def test_cases_out_of_format_are_skipped_and_counted(shared: Path) -> None:
    assert shared.is_dir()
    skipped = [case for case in KAI if case.is_out_of_format]
    assert {run_case(case, lambda: 0).result for case in skipped} == {"skipped"}

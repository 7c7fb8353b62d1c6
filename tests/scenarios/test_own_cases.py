"""Our own cases, made from the documentation of Run:ai, Determined and other schedulers."""

import pytest

from extender.scenario.model.case import Case
from tests.scenarios.judge.verdict import judge
from tests.scenarios.listed import OWN, cases_in


@pytest.mark.parametrize("case", cases_in(OWN / "run-ai"), ids=lambda case: case.id)
def test_run_ai(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "determined"), ids=lambda case: case.id)
def test_determined_as_documented(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "own"), ids=lambda case: case.id)
def test_what_no_other_text_has(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "peers"), ids=lambda case: case.id)
def test_as_documented_elsewhere(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "practice"), ids=lambda case: case.id)
def test_as_users_of_such_schedulers_expect(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "field"), ids=lambda case: case.id)
def test_as_the_documents_of_other_schedulers_say(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "pairs"), ids=lambda case: case.id)
def test_two_documented_rules_at_once(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "siblings"), ids=lambda case: case.id)
def test_siblings_of_shared_cases(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen"), ids=lambda case: case.id)
def test_rules_on_cases_that_nobody_had_seen(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen3"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_third_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen4"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_fourth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen5"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_fifth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen6"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_sixth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen7"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_seventh_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen8"), ids=lambda case: case.id)
def test_rules_on_cases_of_an_eighth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen9"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_ninth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen10"), ids=lambda case: case.id)
def test_rules_on_cases_of_a_tenth_author(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize("case", cases_in(OWN / "unseen11"), ids=lambda case: case.id)
def test_rules_on_cases_of_an_eleventh_author(case: Case) -> None:
    judge(case)


def test_our_cases_are_all_there() -> None:
    assert len(cases_in(OWN / "run-ai")) == 154
    assert len(cases_in(OWN / "determined")) == 13
    assert len(cases_in(OWN / "own")) >= 10
    assert len(cases_in(OWN / "peers")) >= 120
    assert len(cases_in(OWN / "practice")) >= 147
    assert len(cases_in(OWN / "field")) >= 150
    assert len(cases_in(OWN / "pairs")) >= 175
    assert len(cases_in(OWN / "siblings")) >= 285
    assert len(cases_in(OWN / "unseen")) >= 800
    assert len(cases_in(OWN / "unseen4")) >= 169
    assert len(cases_in(OWN / "unseen5")) >= 180
    assert len(cases_in(OWN / "unseen6")) >= 231
    assert len(cases_in(OWN / "unseen7")) >= 207
    assert len(cases_in(OWN / "unseen8")) >= 209
    assert len(cases_in(OWN / "unseen9")) >= 267
    assert len(cases_in(OWN / "unseen10")) >= 287
    assert len(cases_in(OWN / "unseen11")) >= 296


@pytest.mark.parametrize("case", cases_in(OWN / "combined"), ids=lambda case: case.id)
def test_parameters_that_no_other_case_combines(case: Case) -> None:
    judge(case)

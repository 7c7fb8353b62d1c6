"""Every mutant still applies to the tree, and a sample is detected; `make mutants` tries all."""

import itertools
from collections.abc import Iterator

import pytest

from tests.mutants.laboratory import Laboratory, opened
from tests.mutants.mutant import Mutant, all_mutants
from tests.support.thorough import every

MUTANTS = all_mutants()
#: Names begin with the table's: one of each.
SAMPLE = [next(each) for _, each in itertools.groupby(MUTANTS, lambda m: m.name.split("-")[0])]


@pytest.fixture(scope="module")
def laboratory() -> Iterator[Laboratory]:
    with opened() as made:
        yield made


def test_every_mutant_fits_the_tree_and_names_a_test_that_exists() -> None:
    assert [why for each in MUTANTS if (why := each.fault())] == []
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= 86


@pytest.mark.parametrize("mutant", every(4, SAMPLE), ids=lambda mutant: mutant.name)
def test_the_first_of_each_table_is_caught(laboratory: Laboratory, mutant: Mutant) -> None:
    assert laboratory.survives(mutant) == ""


def test_a_mutant_that_changes_nothing_is_said_to_survive(laboratory: Laboratory) -> None:
    harmless = Mutant(
        name="none",
        breaks="nothing",
        file="extender/ledger/rows.py",
        old='"""The rows of all other pods."""',
        new='"""The rows of all other Pods."""',
        caught_by="tests/unit/auditor/test_checker.py::test_revisions_that_go_back_are_not_a_history",
    )
    assert laboratory.survives(harmless).startswith("exit status 0")

"""Our own cases, a file at a time; `ballast scenario run FILE` shows each case of it."""

from pathlib import Path

import pytest

from tests.scenarios.judge.verdict import judged
from tests.scenarios.listed import OWN, cases_in

#: Cases of time slices are read by the tests of the agent.
FILES = sorted(file for file in OWN.rglob("*.yaml") if file.parent.name != "time-slicing")
LEAST_CASES = 4295


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(OWN)))
def test_cases_are_decided_as_they_say(file: Path) -> None:
    found = {case.id: judged(case).reasons for case in cases_in(file)}
    assert {id_: reasons for id_, reasons in found.items() if reasons} == {}


def test_our_cases_are_all_there() -> None:
    assert len(cases_in(OWN)) >= LEAST_CASES

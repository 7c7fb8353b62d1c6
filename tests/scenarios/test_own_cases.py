"""Our own cases, a file at a time; `ballast scenario run FILE` shows each case of it."""

from pathlib import Path

import pytest

from tests.scenarios.judge.verdict import judged
from tests.scenarios.listed import OWN, OWN_FILES, cases_in


@pytest.mark.parametrize("file", OWN_FILES, ids=lambda file: str(file.relative_to(OWN)))
def test_cases_are_decided_as_they_say(file: Path) -> None:
    found = {case.id: judged(case).reasons for case in cases_in(file)}
    assert {id_: reasons for id_, reasons in found.items() if reasons} == {}

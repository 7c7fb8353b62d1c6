"""docs/reasons.md has a row for every reason, with its help."""

from pathlib import Path

import pytest

from extender.api.reasons import Reason

PAGE = Path(__file__).parents[3] / "docs" / "reasons.md"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_row(reason: Reason) -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    row = next((line for line in rows if f"`{reason}`" in line.split("|")[1]), "")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) >= 2
    assert all(cells)

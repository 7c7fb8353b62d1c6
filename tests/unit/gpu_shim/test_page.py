"""docs/gpu-shim.md names tests for the findings of a review; all of them exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "gpu-shim.md").read_text("utf-8")


def test_every_row_of_the_review_names_a_test_that_exists_or_none() -> None:
    table = PAGE.split("| finding | what holds | test |\n|---|---|---|\n")[1].split("\n\n")[0]
    rows = [row.strip("|").split("|") for row in table.splitlines()]
    assert len(rows) == 10
    for finding, _, test in rows:
        if test.strip() != "none":
            path, name = test.strip(" `").split("::")
            assert re.search(rf"def {name}\(", (ROOT / "tests" / path).read_text("utf-8")), finding

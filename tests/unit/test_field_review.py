"""tests/field_review.md names a test for every finding; all of them exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([FKRU]\d+[^|]*) \|[^|]*\|([^|]*)\|([^|]*)\|$",
    (ROOT / "tests" / "field_review.md").read_text("utf-8"),
    re.M,
)


def test_every_finding_has_its_row() -> None:
    named = {number.split()[0] for number, _, _ in ROWS}
    last = {"K": 23, "U": 8, "R": 8, "F": 15}
    assert named >= {f"{kind}{n}" for kind, most in last.items() for n in range(1, most + 1)}


def test_every_row_is_open_or_names_a_test_that_exists() -> None:
    for number, what, tests in ROWS:
        references = re.findall(r"`([^`]+\.py)(?:::(\w+))?`", tests)
        assert references or "*open*" in what, number
        for path, name in references:
            file = ROOT / "tests" / path
            assert file.is_file(), (number, path)
            if name:
                assert f"def {name}(" in file.read_text("utf-8"), (number, name)

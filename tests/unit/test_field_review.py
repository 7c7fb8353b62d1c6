"""docs/field-review.md names a test for every finding; here each of them is looked up."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([KRU]\d+[^|]*) \|[^|]*\|([^|]*)\|([^|]*)\|$",
    (ROOT / "docs" / "field-review.md").read_text("utf-8"),
    re.M,
)


def test_every_finding_has_its_row() -> None:
    named = {number.split()[0] for number, _, _ in ROWS}
    assert named >= {f"K{n}" for n in range(1, 24)} | {f"U{n}" for n in range(1, 9)} | {
        f"R{n}" for n in range(1, 9)
    }


def test_every_row_is_open_or_names_a_test_that_exists() -> None:
    for number, what, tests in ROWS:
        references = re.findall(r"`([^`]+\.py)(?:::(\w+))?`", tests)
        assert references or "*open*" in what, number
        for path, name in references:
            file = ROOT / "tests" / path
            assert file.is_file(), (number, path)
            if name:
                assert f"def {name}(" in file.read_text("utf-8"), (number, name)

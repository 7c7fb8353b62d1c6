"""The table of folders in docs/development.md names all packages and folders of tests."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "development.md").read_text("utf-8")
#: Their names say what they are, and the text below the table how they are run.
KINDS_OF_TESTS = {"unit", "property", "integration", "scenarios"}


def packages(folder: str) -> set[str]:
    found = (each.parent.name for each in (ROOT / folder).glob("*/__init__.py"))
    return {f"{folder}/{name}" for name in found}


@pytest.mark.parametrize("folder", ["extender", "tests"])
def test_every_package_has_a_row(folder: str) -> None:
    rows = PAGE[: PAGE.index("## Tests")]
    missing = {
        each
        for each in packages(folder)
        if f"`{each}" not in rows and each.split("/")[1] not in KINDS_OF_TESTS
    }
    assert not missing

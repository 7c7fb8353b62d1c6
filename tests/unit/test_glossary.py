"""The glossary explains what commands print, and names modules and definitions that exist."""

import re
from pathlib import Path

import pytest

from extender.cli.questions.listed import SHARES

ROOT = Path(__file__).resolve().parents[2]
POLICY = ROOT / "extender" / "policy"
TEXT = (ROOT / "docs" / "glossary.md").read_text()
#: A module of the policy, and a name in it.
NAMED = re.findall(r"`([a-z_/]+\.py)` `(\w+)`", TEXT)


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`([a-z_/]+\.py)`", TEXT))))
def test_the_module_exists(module: str) -> None:
    assert (POLICY / module).is_file()


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_the_module_defines_the_name(module: str, name: str) -> None:
    text = (POLICY / module).read_text()
    assert re.search(rf"^(class|def) {name}\b", text, re.MULTILINE)


@pytest.mark.parametrize("column", [each.name for each in SHARES.columns])
def test_every_column_of_shares_is_a_term(column: str) -> None:
    terms = {
        term.strip().lower()
        for line in TEXT.partition("## In the code")[0].splitlines()
        for term in line.partition("|")[2].partition("|")[0].split(",")
    }
    assert {"queue": "project", "pool": "node pool"}.get(column.lower(), column.lower()) in terms

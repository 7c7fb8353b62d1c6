"""The glossary names modules and definitions that exist."""

import re
from pathlib import Path

import pytest

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

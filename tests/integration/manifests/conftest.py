"""Kinds of other projects that our manifests use, and the comparison of rights put last."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LAST = HERE / "test_rights.py"
#: Options with which some tests are left out.
CHOOSING = ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob")
#: Whether every integration test is part of this run.
IS_WHOLE: pytest.StashKey[bool] = pytest.StashKey()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What compares with all that was done comes after it."""
    items.sort(key=lambda item: item.path == LAST)
    asked = [Path(config.invocation_params.dir, each) for each in config.args]
    chosen = [each for each in CHOOSING if getattr(config.option, each, None)]
    config.stash[IS_WHOLE] = not chosen and any(HERE.parent.is_relative_to(each) for each in asked)


@pytest.fixture
def foreign_kinds() -> Path:
    """A folder of definitions: cert-manager's and the Prometheus operator's."""
    return HERE / "kinds"

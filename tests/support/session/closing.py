"""Lines below the results of a run, from all workers."""

import pytest

_LINES: pytest.StashKey[list[str]] = pytest.StashKey()


def add_line(config: pytest.Config, line: str) -> None:
    """Add a line below the results."""
    config.stash.setdefault(_LINES, []).append(line)


def lines(config: pytest.Config) -> list[str]:
    """The lines so far."""
    return config.stash.get(_LINES, [])

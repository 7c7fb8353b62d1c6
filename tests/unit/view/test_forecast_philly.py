"""How often forecasts hold on a slice of a production trace, with run times as they were."""

from pathlib import Path

import pytest

from extender.lab.philly.trace import load_trace
from tests.support.foretold import foretell, hit_rates

HOUR = 3600


def test_forecasts_from_stated_run_times_hold_in_the_share_that_is_documented(shared: Path) -> None:
    """docs/figures.md has a longer time; this is the first days, before the cluster is full."""
    folder = shared / "traces" / "philly"
    if not folder.is_dir():
        pytest.skip(f"no trace at {folder}")
    replay = foretell(load_trace(folder, 64, (1, 4)), 6 * HOUR, 500)
    rates = hit_rates(replay.forecasts)
    held, made = (sum(pair[i] for pair in rates.values()) for i in (0, 1))
    assert made >= 100
    assert held >= 0.75 * made, rates
    # Nothing is said that is off by more than half of the wait, and a cycle or two.
    assert all(0.5 <= each.ratio <= 1.75 for each in replay.forecasts if each.start_s)

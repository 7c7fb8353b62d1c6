"""How often forecasts hold on a slice of a production trace, with its actual run times."""

from pathlib import Path

import pytest

from extender.lab.philly.trace import load_trace
from tests.support.foretold import foretell, hit_rates

HOUR = 3600


def test_work_does_not_start_before_it_was_said_to_from_stated_run_times(shared: Path) -> None:
    """docs/figures.md has more; these are the first days, before the cluster is full."""
    folder = shared / "traces" / "philly"
    if not folder.is_dir():
        pytest.skip(f"no trace at {folder}")
    replay = foretell(load_trace(folder, 64, (1, 4)), 2 * HOUR, 300)
    rates = hit_rates(replay.forecasts)
    held, made = (sum(pair[i] for pair in rates.values()) for i in (0, 1))
    assert made >= 50
    assert held >= 0.9 * made, rates
    # Why no end is said: how much later work starts differs by more than a fifth.
    ratios = sorted(each.ratio for each in replay.forecasts if each.start_s and each.started_s)
    assert ratios[-1] > 1.2 * ratios[0]

"""A short run of the soak; `python -m tests.integration.gpu_shim.soak --hours 24` is a long one."""

from pathlib import Path

import pytest

from tests.integration.gpu_shim.soak import soak


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_honest_program_is_evicted_or_refused_and_every_dishonest_one_is_found(
    place: Path, native: Path, driver: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("FAKECUDA_STATE", "set by the soak")
    tally = await soak(place, native, driver, 600, seed)
    assert tally.evicted_honest == []
    assert tally.refused_wrongly == []
    assert tally.not_found == []
    for what in ("allocations", "dishonest found", "programs"):
        assert tally.done[what] > 0, what
    assert tally.done["restarts of the agent"] + tally.done["losses of the GpuNode"] > 0

"""The part of `make faults` in every run of the test suite: a few minutes, eight kinds of fault.

Restores, and kills of the extender and the API server, are in `tests/integration/faults`, without a
load.
"""

import time
from typing import Final

import pytest

from tests.faults.trial import opened

SEED: Final = 7
KINDS: Final = (
    "crashes at writes",
    "stop etcd",
    "two leaders",
    "extender and webhooks away",
    "pods made again",
    "connections cut",
    "silent network",
    "lost answers",
)


@pytest.mark.controlplane
@pytest.mark.timeout(900)
async def test_faults_under_load_violate_nothing_and_work_goes_on() -> None:
    async with opened(SEED, KINDS) as trial:
        await trial.run(ends_s=time.monotonic())
    lines = "\n".join(trial.tally.lines())
    print(lines)
    assert trial.tally.is_passed, lines

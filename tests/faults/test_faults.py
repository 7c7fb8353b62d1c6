"""The part of `make faults` in every run of the test suite: a few minutes, four kinds of fault.

`make test-all` injects four more. Restores, and kills of the extender and the API server, are in
`tests/integration/faults`, without a load, and so is one trial of two leaders; requests that fail
are in `tests/integration/kube`.
"""

import time
from typing import Final

import pytest

from tests.faults.trial import opened
from tests.support.thorough import every

SEED: Final = 7
KINDS: Final = ("crashes at writes", "stop etcd", "pods made again", "silent network")
MORE: Final = ("two leaders", "extender and webhooks away", "connections cut", "lost answers")


@pytest.mark.controlplane
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", every(2, [[*KINDS], [*MORE]]), ids=["usual", "more"])
async def test_faults_under_load_violate_nothing_and_work_goes_on(kinds: list[str]) -> None:
    async with opened(SEED, tuple(kinds)) as trial:
        await trial.run(ends_s=time.monotonic())
    lines = "\n".join(trial.tally.lines())
    print(lines)
    assert trial.tally.is_passed, lines

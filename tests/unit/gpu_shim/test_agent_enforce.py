"""What the agent's eyes and hands do with what they see."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpu_shim.agent.agent import Agent
from gpu_shim.agent.enforce import Enforcer, Sources
from gpu_shim.agent.nvml import NvmlError
from gpu_shim.agent.tenants import Tenant
from gpu_shim.arbiter.container import Card
from gpu_shim.policy.shares import Claim
from tests.unit.gpu_shim.test_nri_plugin import Doors


class Driver:
    """A driver with one card; it knows no other."""

    def processes(self, uuid: str) -> Mapping[int, int]:
        if uuid != "GPU-there":
            raise NvmlError("nvmlDeviceGetHandleByUUID: Not Found")
        return {}


async def test_a_card_that_the_driver_does_not_know_hides_no_other(tmp_path: Path) -> None:
    doors: Any = Doors()
    doors.containers = defaultdict(lambda: SimpleNamespace(table=None))
    agent = Agent("n", [], doors, tmp_path, tmp_path)
    for at, uuid in enumerate(("GPU-gone", "GPU-there")):
        claim = Claim(f"u-{at}", Fraction(0), Fraction(1))
        agent.tenants[claim.name] = Tenant(claim.name, "team", "p", claim, (Card(uuid, 64),))
    driver: Any = Driver()
    enforcer = Enforcer(None, agent, Sources(driver), is_evicting=True)  # type: ignore[arg-type]
    assert await enforcer.audit() == []
    assert enforcer.sources.auditor.seen == {("u-1", "GPU-there"): 0}

"""Enforcement by the agent: reactions to what it observes."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from extender.api.reasons import Reason
from extender.kube.errors import Conflict
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Breach
from gpu_shim.agent.enforce import GRACE_S, Enforcer, EvictionSettings, Sources
from gpu_shim.agent.nvml import NvmlError
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.container import ContainerCard
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
        agent.tenants[claim.name] = SharingPod(
            claim.name, "team", "p", claim, (ContainerCard(uuid, 64),)
        )
    driver: Any = Driver()
    enforcer = Enforcer(None, agent, Sources(driver))  # type: ignore[arg-type]
    assert await enforcer.audit() == []
    assert enforcer.sources.auditor.seen == {("u-1", "GPU-there"): 0}


class Cluster:
    """The API server as far as an eviction goes. Pods have their names as UIDs, if no other."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.uids: dict[str, str] = {}

    async def delete(
        self, _resource: object, name: str, _namespace: str, *, uid: str = "", grace_s: int
    ) -> None:
        assert grace_s == GRACE_S
        if uid not in ("", self.uids.get(name, name)):
            raise Conflict("the UID in the precondition is not the pod's")
        self.deleted.append(name)


class Stage:
    """An enforcer of pods a (team) and dcgm (gpu-operator), and its clock."""

    def __init__(self, tmp_path: Path, eviction: EvictionSettings) -> None:
        doors: Any = Doors()
        self.cluster, self.now_s = Cluster(), 1000.0
        agent = Agent("n", [], doors, tmp_path, tmp_path)
        for name, namespace in (("a", "team"), ("dcgm", "gpu-operator")):
            claim = Claim(name, Fraction(0), Fraction(1))
            agent.tenants[name] = SharingPod(
                name, namespace, name, claim, (ContainerCard("GPU-there", 64),)
            )
        api: Any = self.cluster
        self.enforcer = Enforcer(api, agent, Sources(), eviction, clock=lambda: self.now_s)

    async def look(self, seconds: int, *found: Breach) -> list[str]:
        """The same findings for so many seconds; the pods deleted."""
        for _ in range(seconds):
            await self.enforcer.act(list(found))
            self.now_s += 1
        return self.cluster.deleted


BARE = Breach("a", Reason.GPU_UNPROTECTED, "a: no library")
DCGM = Breach("dcgm", Reason.GPU_NOT_GIVEN, "dcgm: a card of others")
ABOVE = Breach("a", Reason.GPU_MEMORY_OVER_CAP, "a: a little above", is_evictable=False)


async def test_as_installed_no_pod_is_evicted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings())
    assert await stage.look(600, BARE) == []
    assert stage.enforcer.findings == [BARE]


async def test_a_pod_is_reported_before_it_is_evicted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings(is_on=True))
    assert await stage.look(30, BARE) == []
    assert await stage.look(1, BARE) == ["a"]


async def test_a_finding_that_went_away_is_reported_anew_before_an_eviction(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings(is_on=True))
    await stage.look(29, BARE)
    await stage.look(1)
    assert await stage.look(30, BARE) == []


async def test_what_an_honest_program_can_come_to_is_reported_only(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings(is_on=True))
    assert await stage.look(600, ABOVE) == []
    assert stage.enforcer.findings == [ABOVE]


async def test_time_in_which_there_was_nothing_to_evict_for_does_not_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings(is_on=True))
    restarting = replace(BARE, is_evictable=False)
    await stage.look(600, restarting)
    assert await stage.look(30, restarting, BARE) == []
    assert await stage.look(1, restarting, BARE) == ["a"]


async def test_a_successor_of_the_same_name_is_not_evicted_in_its_place(tmp_path: Path) -> None:
    stage = Stage(tmp_path, EvictionSettings(is_on=True, after_s=0))
    stage.cluster.uids["a"] = "another"
    assert await stage.look(3, BARE) == []


async def test_tools_of_the_node_are_neither_reported_nor_evicted(tmp_path: Path) -> None:
    spared = frozenset({"gpu-operator"})
    stage = Stage(tmp_path, EvictionSettings(is_on=True, after_s=0, spared=spared))
    assert await stage.look(60, DCGM) == []
    assert stage.enforcer.findings == []

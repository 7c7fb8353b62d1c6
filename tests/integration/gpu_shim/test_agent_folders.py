"""Folders that containers have mounted, while rows of their pods are added and removed."""

import pytest
from msgspec.structs import replace

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row, TimeSlicing
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from tests.integration.gpu_shim.containers import Scene, until
from tests.support.fakecuda import UUID

ROW = Row(uid="a", namespace="team", name="p", cards=[CardShare(0, 500, 64)], state="bound")
WITH_ROW = GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=[ROW]))
HOLDING = """
begin(); plain(40 * MIB); tell(memory())
while hear() == "more":
    tell(plain(30 * MIB)[0])
"""


@pytest.fixture
def agent(scene: Scene) -> Agent:
    devices = [Device(index=0, memory_mib=16384, uuid=UUID)]
    return Agent("n", devices, scene.arbiter, scene.native, scene.root, is_running=lambda _: True)


@pytest.mark.parametrize("without", [None, GpuNode(metadata=ObjectMeta(name="n"))])
async def test_a_row_that_is_missing_for_a_moment_leaves_a_running_pod_capped(
    scene: Scene, agent: Agent, without: GpuNode | None
) -> None:
    agent.apply(WITH_ROW)
    folder = scene.home("a").stat().st_ino
    program = await scene.run("a", HOLDING)
    assert await program.answer() == [24, 64]
    agent.apply(without)
    await program.say("more")
    assert await program.answer() == 2
    agent.apply(WITH_ROW)
    assert scene.home("a").stat().st_ino == folder
    await until(lambda: scene.n_processes() == 1)
    assert scene.used_mib("a") == 40
    assert scene.table("a").owners()[0][1] == program.process.pid
    await program.say("more")
    assert await program.answer() == 2


async def test_a_pod_that_no_longer_fits_when_time_is_sliced_is_rejected_until_it_fits(
    scene: Scene, agent: Agent
) -> None:
    """The ledger allocates no card twice: rows that were written by hand do."""
    rows = [
        replace(ROW, compute_request_milli=500),
        replace(ROW, uid="b", cards=[CardShare(0, 600, 64)], compute_request_milli=600),
    ]
    both, second = (
        GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=some))
        for some in (rows, rows[1:])
    )
    agent.slice_by(TimeSlicing(mode="Disabled"))
    agent.apply(both)
    assert sorted(agent.tenants) == ["a", "b"]
    agent.slice_by(TimeSlicing(mode="Fair"))
    agent.apply(both)
    assert list(agent.tenants) == list(scene.arbiter.containers) == ["a"]
    assert "compute requests add up to 11/10" in agent.rejected["b"]
    agent.apply(second)
    assert list(agent.tenants) == list(scene.arbiter.containers) == ["b"]
    assert not agent.rejected


async def test_the_folder_goes_once_no_container_of_the_pod_runs(
    scene: Scene, agent: Agent
) -> None:
    agent.apply(WITH_ROW)
    agent.apply(None)
    assert scene.home("a").exists()
    agent.is_running = lambda _: False
    agent.sweep()
    assert not scene.home("a").exists()

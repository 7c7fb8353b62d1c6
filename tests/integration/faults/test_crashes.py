"""Killing any program in the middle of a gang of eight or of a move, wherever that leaves things.

After a restart the gang runs whole or not at all, what was to be moved runs, and no row is lost or
doubled. `make test-crashes` tries each point five times. Crashes at every write under load are in
`tests/faults`.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tests.integration.faults.gang_of_eight import GANG, Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.thorough import every

REPEATS = int(os.environ.get("BALLAST_CRASH_REPEATS", "1"))
CONTROL_POINTS = (
    "before PATCH gpunodes:1",
    "after PATCH gpunodes:1",
    "after PATCH gpunodes:2",
    "before PATCH pods:1",
    "after PATCH pods:1",
    "after PATCH pods:4",
    "after PATCH pods:8",
)
#: While two pods are moved so that one that wants a whole node fits; the last ones lie in the
#: hand-over of their places.
MOVE_POINTS = (
    "before PATCH gpunodes:1",
    "after PATCH gpunodes:1",
    "after PATCH gpunodes:2",
    "before POST pods/eviction:1",
    "after POST pods/eviction:1",
    "after POST pods/eviction:2",
    "after PATCH gpunodes:4",
    "after PATCH gpunodes:5",
    "after PATCH pods:1",
)
SERVE_POINTS = (
    "before POST pods/binding:1",
    "before POST pods/binding:5",
    "after POST pods/binding:4",
)
#: Programs that have no failpoints are killed when this many of the gang are bound.
SEEN_BOUND = (1, 4)


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """An installation, four nodes, a project; ends when the auditor has seen it come to rest."""
    async with Scene.open(cluster) as opened:
        yield opened
        await audited.finish()


@pytest.mark.parametrize("_repeat", range(REPEATS))
@pytest.mark.parametrize("point", every(3, CONTROL_POINTS))
async def test_gang_is_whole_after_the_controller_is_killed(
    scene: Scene, audited: Auditor, point: str, _repeat: int
) -> None:
    await scene.restart_control(failpoint=point)
    scene.submit_gang()
    await scene.wait_dead(scene.installation.control)
    await asyncio.to_thread(scene.installation.control.start)
    await scene.expect_whole_gang()


@pytest.mark.parametrize("_repeat", range(REPEATS))
@pytest.mark.parametrize("point", every(2, SERVE_POINTS))
async def test_gang_is_whole_after_the_extender_is_killed(
    scene: Scene, audited: Auditor, point: str, _repeat: int
) -> None:
    await scene.restart_serve(failpoint=point)
    scene.submit_gang()
    await scene.wait_dead(scene.installation.serve)
    await asyncio.to_thread(scene.installation.serve.start)
    await scene.expect_whole_gang()


@pytest.mark.parametrize("_repeat", range(REPEATS))
@pytest.mark.parametrize("n_bound", every(2, SEEN_BOUND))
@pytest.mark.parametrize("program", ["kube-scheduler", "kube-apiserver"])
async def test_gang_is_whole_after_a_part_of_kubernetes_is_killed(
    scene: Scene, audited: Auditor, program: str, n_bound: int, _repeat: int
) -> None:
    scene.submit_gang()
    await scene.wait_bound(n_bound)
    scene.plane.kill(program)
    await asyncio.to_thread(scene.plane.restart, program)
    await scene.expect_whole_gang()


@pytest.mark.parametrize("_repeat", range(REPEATS))
@pytest.mark.parametrize("point", every(3, MOVE_POINTS))
async def test_moved_pods_run_again_after_the_controller_is_killed(
    scene: Scene, audited: Auditor, point: str, _repeat: int
) -> None:
    n_running = await scene.fragment()
    await scene.restart_control(failpoint=point)
    scene.submit_big()
    await scene.wait_dead(scene.installation.control)
    await asyncio.to_thread(scene.installation.control.start)
    await scene.expect_bound_rows_match(n_running + 1)


async def test_two_controllers_alive_at_once_book_nothing_twice(
    scene: Scene, audited: Auditor
) -> None:
    other = scene.installation.another_control("other")
    other.start_unready()
    try:
        scene.submit_gang()
        await scene.wait_rows(1)
        scene.installation.control.freeze()
        await scene.wait_other_leads("other")
        scene.submit_singles(8)
        await scene.wait_bound(GANG)
        scene.installation.control.thaw()
        scene.submit_singles(8, name="late")
        await scene.expect_bound_rows_match(GANG + 16)
    finally:
        other.end()

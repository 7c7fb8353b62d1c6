"""The agent's metrics of how long programs waited for a card."""

from gpu_shim.agent.waits import Waits
from tests.integration.gpu_shim.conftest import LEASE_NS
from tests.integration.gpu_shim.containers import Scene
from tests.support.fakecuda import UUID

BUSY = "begin(); tell(0); tell(work(1000, 1.5) > 0)"


async def test_programs_that_never_pause_wait_for_the_leases_of_the_others(scene: Scene) -> None:
    await scene.stop()
    scene.observer = waits = Waits()
    scene.start()
    for name in "ab":
        scene.container(name, "1/2", "1/2")
    programs = [await scene.run(name, BUSY) for name in "ab"]
    for program in programs * 2:
        await program.answer()
    # Each waits for about a lease of the other, again and again.
    assert all(waits.p99_ns((name, UUID)) > LEASE_NS // 2 for name in "ab")

"""Memory above the request, on a real containerd: lent, refused, and returned for a new pod."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator

import grpc
import pytest

from extender.api.names import ANNOTATION_CARDS
from gpu_shim.agent.audit import Auditor, Breach
from gpu_shim.agent.cgroups import pod_of
from gpu_shim.agent.enforce import Enforcer, Sources
from gpu_shim.agent.nvml import Nvml
from gpu_shim.agent.observe import Figures, Parts
from gpu_shim.arbiter.container import MIB
from tests.integration.gpu_shim.containers import PROGRAM, until
from tests.integration.gpu_shim.test_nri_containerd import UIDS, Node
from tests.integration.gpu_shim.test_nri_containerd import node as runtime
from tests.support.fakecuda import UUID

__all__ = ["runtime"]

LENDER, COMER = UIDS[:2]
NOTES = {ANNOTATION_CARDS: "0:250:4096", "gpu-memory": "4096"}
WITH_LIMIT = NOTES | {"gpu-memory-limit": "16384"}

#: Takes 12 of 16 GiB; is refused more once another pod has come; frees 4 GiB, and is refused still.
BORROWER = """
GO = os.environ['FAKECUDA_STATE'] + '.go'
def wait(step):
    while not os.path.exists(GO + step): time.sleep(0.02)
begin(); first = plain(8192 * MIB); second = plain(4096 * MIB)
tell([first[0], second[0], memory()[1]])
wait('1'); tell([plain(2 * MIB)[0], memory()])
wait('2'); tell([free('plain', second[1]), plain(2 * MIB)[0]]); time.sleep(1000)
"""


@pytest.fixture
async def node(runtime: Node) -> AsyncIterator[Node]:
    """A node of a pool that lends memory."""
    runtime.agent.is_lending = True
    runtime.agent.is_running = runtime.plugin.is_running
    settling = asyncio.create_task(runtime.plugin.lender.run())
    await until(lambda: runtime.plugin.is_listed)
    yield runtime
    settling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await settling


async def line(node: Node, container: str, at: int) -> str:
    """What a program told as its line `at`, once it has."""
    path = node.runtime.root / f"{container}.out"
    await until(lambda: path.read_text().count("\n") > at)
    return path.read_text().splitlines()[at].split(" ", 3)[3]


async def findings(node: Node) -> list[Breach]:
    """What the audit says after four seconds, by the figures of the fake driver's NVML."""
    root, times = node.runtime.root, iter((0.0, 4.0))
    nvml = Nvml(str(shutil.copy(root / "driver" / "libnvidia-ml.so.1", root / "nvml.so")))
    sources = Sources(nvml, node.plugin, Auditor(pod_of))
    enforcer = Enforcer(None, node.agent, sources, clock=lambda: next(times))  # type: ignore[arg-type]
    await enforcer.audit()
    found = await enforcer.audit()
    assert sources.auditor.seen[LENDER, UUID] == 12288 * MIB
    return found


def caps(node: Node) -> list[float]:
    """The pods' caps as metrics show them, in MiB."""
    (metric,) = (
        each
        for each in Figures(Parts(node.agent)).collect()
        if each.name == "ballast_gpu_memory_cap_bytes"
    )
    return [sample.value / MIB for sample in metric.samples]


async def test_a_pod_that_comes_to_a_card_has_its_request_as_soon_as_it_is_given_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKECUDA_STATE", str(node.card.path))
    node.rows((LENDER, 4096))
    borrower = await node.python(await node.runtime.pod(LENDER, WITH_LIMIT), str(PROGRAM), BORROWER)
    assert await line(node, borrower, 0) == "[0, 0, 16384]"
    assert caps(node) == [16384]
    # The request of the pod that comes is not free: it waits, and nothing more is lent.
    node.rows((LENDER, 4096), (COMER, 8192))
    comer = await node.runtime.pod(COMER, NOTES)
    take = "begin(); tell([memory(), plain(8192 * MIB)[0]])"
    with pytest.raises(grpc.aio.AioRpcError, match="waits for 4096 of its 8192 MiB of GPU-"):
        await node.gpu(comer, take)
    node.card.path.with_name("state.go1").touch()
    assert await line(node, borrower, 1) == "[2, [0, 8192]]"
    assert caps(node) == [8192, 8192]
    assert await findings(node) == []
    node.card.path.with_name("state.go2").touch()
    assert await line(node, borrower, 2) == "[0, 2]"
    assert await node.gpu(comer, take) == ["[[8192, 8192], 0]"]


async def test_without_the_switch_a_pod_has_its_request(node: Node) -> None:
    node.agent.is_lending = False
    node.rows((LENDER, 4096))
    pod = await node.runtime.pod(LENDER, WITH_LIMIT)
    assert await node.gpu(pod, "begin(); tell(memory())") == ["[4096, 4096]"]

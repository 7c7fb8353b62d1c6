"""The NRI plugin on a real containerd: what containers see, and restarts of the plugin."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row
from extender.api.names import ANNOTATION_CARDS
from extender.api.objects import ObjectMeta
from extender.api.reasons import Reason
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Auditor, CardUsers
from gpu_shim.agent.cgroups import is_in_container, pod_of
from gpu_shim.agent.nri.adjust import Delivery
from gpu_shim.agent.nri.plugin import NAME, NodePlugin, RunningContainer
from gpu_shim.agent.nvml import Nvml
from gpu_shim.agent.restarts import NotEndedError, Restarts, end_first_process
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.protocol.pages import Library
from tests.integration.gpu_shim.containers import PROGRAM, until
from tests.integration.gpu_shim.cri import Containerd, find_programs
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard

UIDS = [f"00000000-0000-4000-8000-00000000000{at}" for at in range(4)]
CARDS = {ANNOTATION_CARDS: "0:250:64"}


@dataclass(slots=True)
class Node:
    """A containerd, an agent on its NRI socket, and the card that both are about."""

    runtime: Containerd
    agent: Agent
    plugin: NodePlugin
    card: FakeCard
    serving: "asyncio.Task[None] | None" = None

    def rows(self, *shares: tuple[str, int]) -> None:
        """Say what the node's GpuNode says: (uid, MiB) of who has a quarter of the card."""
        about: dict[str, Any] = {"namespace": "team", "name": "p", "restart_policy": "Always"}
        rows = [
            Row(uid=uid, cards=[CardShare(0, 250, mib)], state="bound", **about)
            for uid, mib in shares
        ]
        self.agent.apply(GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=rows)))

    async def gpu(self, sandbox: str, code: str) -> list[str]:
        """What a program that uses the card wrote in a container of a pod."""
        name = await self.python(sandbox, str(PROGRAM), f"{code}; tell('.')")
        return await self.runtime.output(name)

    async def plain(self, sandbox: str, code: str) -> list[str]:
        """What a program wrote that does not."""
        return await self.runtime.output(await self.start(sandbox, code))

    async def start(self, sandbox: str, code: str) -> str:
        """Start a program that writes one value; its container's name."""
        return await self.python(sandbox, "-c", f"import os; print({code}); print('.', flush=True)")

    def listen(self) -> None:
        """Have the plugin serve the runtime."""
        self.serving = asyncio.create_task(self.plugin.run())

    async def hang_up(self) -> None:
        """Let nothing serve it."""
        assert self.serving is not None
        self.serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.serving

    async def python(self, sandbox: str, *words: str) -> str:
        """Start a Python program in a container of a pod; the container's name."""
        base = sys.base_prefix
        mounts = {base: True, "/usr/lib/x86_64-linux-gnu": True, "/usr/lib64": True}
        mounts |= {str(PROGRAM.parent): True, str(self.card.path.parent): False}
        environment = {"FAKECUDA_STATE": str(self.card.path), "LD_LIBRARY_PATH": f"{base}/lib"}
        python = f"{base}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        return await self.runtime.run(sandbox, [python, "-I", *words], mounts, **environment)


@pytest.fixture
async def node(native: Path, driver: Path) -> AsyncIterator[Node]:
    programs = find_programs()
    if programs is None or os.geteuid() != 0 or shutil.which("runc") is None:
        pytest.skip("needs root, runc, and a containerd that `make e2e` has built")
    root = Path(tempfile.mkdtemp(prefix="nri-"))
    runtime = Containerd(root, programs)
    await runtime.start()
    await runtime.take_image()
    (root / "card").mkdir()
    for folder, source in (("driver", driver), ("native", native)):
        shutil.copytree(source, root / folder)
    library = Library(root / "native" / "libballast-pages.so")
    device = Device(index=0, memory_mib=16384, uuid=UUID)
    agent = Agent("n", [device], Arbiter(library, grace_s=0.0), root / "native", root / "pods")
    plugin = NodePlugin(agent, Delivery("files", root / "driver"), runtime.nri)
    made = Node(runtime, agent, plugin, FakeCard(root / "card" / "state"))
    beating = asyncio.create_task(agent.arbiter.run())
    made.listen()
    yield made
    await made.hang_up()
    beating.cancel()
    await runtime.stop()
    shutil.rmtree(root)


SEEN = "[os.environ.get('NVIDIA_VISIBLE_DEVICES'), os.path.exists('/etc/ld.so.preload')]"


async def test_a_pod_with_a_row_sees_its_caps_and_other_pods_see_nothing_of_us(node: Node) -> None:
    node.rows((UIDS[0], 64))
    await until(lambda: node.plugin.is_connected)
    pod = await node.runtime.pod(UIDS[0], CARDS)
    assert await node.gpu(pod, "begin(); tell(memory())") == ["[64, 64]"]
    assert await node.plain(pod, SEEN) == ["['void', True]"]
    other = await node.runtime.pod(UIDS[1], {})
    assert await node.plain(other, SEEN) == ["[None, False]"]


async def test_a_pod_that_says_it_has_a_card_but_has_no_row_does_not_start(node: Node) -> None:
    node.rows()
    await until(lambda: node.plugin.is_connected)
    pod = await node.runtime.pod(UIDS[2], CARDS)
    with pytest.raises(grpc.aio.AioRpcError, match="GpuNode has no row for it"):
        await node.plain(pod, "1")
    node.rows((UIDS[2], 32))
    assert await node.plain(pod, SEEN) == ["['void', True]"]


async def test_what_started_without_us_is_found_when_the_runtime_comes_back(node: Node) -> None:
    node.rows((UIDS[0], 64), (UIDS[3], 64))
    await until(lambda: node.plugin.is_connected)
    kept = await node.runtime.pod(UIDS[0], CARDS)
    forever = "__import__('time').sleep(1000)"
    await node.start(kept, forever)
    await node.hang_up()
    missed = await node.runtime.pod(UIDS[3], CARDS)
    name = await node.start(missed, forever)
    node.listen()
    await until(lambda: [each.pod for each in node.plugin.unprotected()] == [UIDS[3]])
    restarting = asyncio.create_task(node.runtime.restart())
    await until(lambda: not node.plugin.is_connected)
    await restarting
    await until(lambda: node.plugin.is_connected)
    await until(lambda: len(node.plugin.containers) == 2)
    (found,) = node.plugin.unprotected()
    assert (found.name, found.pid > 0) == (name, True)
    assert await node.gpu(kept, "begin(); tell(memory())") == ["[64, 64]"]


def end_as_on_a_host(container: RunningContainer) -> None:
    """End the process by its number here: the runtime's own is of its namespace of processes."""
    for status in Path("/proc").glob("[0-9]*/status"):
        pid = int(status.parent.name)
        with contextlib.suppress(OSError):
            (line,) = [each for each in status.read_text().splitlines() if "NSpid" in each]
            is_first = line.split()[2:3] == [str(container.pid)]
            if is_first and is_in_container(pid, container.pod, container.id):
                end_first_process(replace(container, pid=pid))
                return
    raise NotEndedError("no process has this number")


async def test_a_container_that_started_without_us_is_ended_and_the_next_has_the_library(
    node: Node,
) -> None:
    node.rows((UIDS[3], 64))
    pod = await node.runtime.pod(UIDS[3], CARDS)
    await until(lambda: node.plugin.is_connected)
    await node.hang_up()
    name = await node.start(pod, "__import__('time').sleep(1000)")
    node.listen()
    await until(lambda: bool(node.plugin.unprotected()))
    restarts = Restarts(node.plugin, is_on=True, end=end_as_on_a_host)
    assert [(each.name, restarts.restart(each)) for each in restarts.due()] == [(name, True)]
    await until(lambda: not node.plugin.unprotected())
    (found,) = restarts.findings()
    assert f"container {name} was ended, and has not started again" in found.message
    assert await node.plain(pod, SEEN) == ["['void', True]"]


async def test_a_runtime_can_be_told_to_start_nothing_of_ours_without_us(node: Node) -> None:
    node.rows((UIDS[0], 64))
    await until(lambda: node.plugin.is_connected)
    notes = CARDS | {"required-plugins.noderesource.dev/pod": f"[ {NAME} ]"}
    pod = await node.runtime.pod(UIDS[0], notes)
    assert await node.plain(pod, "1") == ["1"]
    await node.hang_up()
    # It notices that a plugin is gone when it next asks: at the latest with the next pod.
    await node.runtime.pod(UIDS[1], {})
    with pytest.raises(grpc.aio.AioRpcError, match='required plugin "ballast" not present'):
        await node.plain(pod, "1")


ESCAPE = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.dlmopen.restype = libc.dlsym.restype = ctypes.c_void_p
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
driver = libc.dlmopen(ctypes.c_long(-1), b"/usr/local/nvidia/lib64/libcuda.so.1", 2)
def call(name, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int)(libc.dlsym(driver, name))(*arguments)
context, at = ctypes.c_void_p(), ctypes.c_uint64()
call(b"cuInit", 0), call(b"cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
print(call(b"cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(100 << 20)), flush=True)
print(".", flush=True)
time.sleep(1000)
"""


async def test_a_tenant_that_loads_the_driver_past_the_library_is_found(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKECUDA_STATE", str(node.card.path))
    root = node.runtime.root
    nvml = Nvml(str(shutil.copy(root / "driver" / "libnvidia-ml.so.1", root / "nvml.so")))
    node.rows((UIDS[0], 64), (UIDS[3], 64))
    await until(lambda: node.plugin.is_connected)
    honest, greedy = [await node.runtime.pod(uid, CARDS) for uid in (UIDS[0], UIDS[3])]
    held = "begin(); plain(10 * MIB); tell(memory()); tell('.'); time.sleep(1000)"
    name = await node.python(honest, str(PROGRAM), held)
    assert await node.runtime.output(name) == ["[54, 64]"]
    assert await node.runtime.output(await node.python(greedy, "-c", ESCAPE)) == ["0"]
    auditor = Auditor(pod_of)
    for now_s in (0.0, 3.0):
        ledger = CardUsers(list(node.agent.tenants.values()), node.agent.tables())
        found = auditor.look(ledger, {UUID: nvml.processes(UUID)}, now_s)
    assert [(each.uid, each.reason) for each in found] == [
        (UIDS[3], Reason.GPU_UNPROTECTED),
        (UIDS[3], Reason.GPU_MEMORY_OVER_CAP),
    ]
    assert auditor.seen == {(UIDS[0], UUID): 10 << 20, (UIDS[3], UUID): 100 << 20}

"""The node agent as a program, between a GpuNode and containers."""

import asyncio
import contextlib
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.integration.gpu_shim.containers import DONE_S, Running, Scene, until
from tests.integration.kube.fakeapi import FakeApi
from tests.support.controlplane.ports import free_port
from tests.support.fakecuda import UUID

ROOT = Path(__file__).resolve().parents[3]


def gpu_node(*rows: tuple[str, int, int], version: str = "5") -> dict[str, object]:
    """A GpuNode whose rows are (uid, milli, MiB) on its only card."""
    return {
        "metadata": {"name": "node-1", "uid": "n", "resourceVersion": version},
        "spec": {
            "rows": [
                {
                    "uid": uid,
                    "namespace": "team",
                    "name": f"pod-{uid}",
                    "cards": [{"index": 0, "milli": milli, "memoryMiB": mib}],
                    "computeRequestMilli": milli,
                    "state": "bound",
                }
                for uid, milli, mib in rows
            ]
        },
    }


def listing(*nodes: dict[str, object]) -> tuple[int, object]:
    return 200, {"kind": "GpuNodeList", "metadata": {"resourceVersion": "5"}, "items": list(nodes)}


@dataclass(slots=True)
class Node:
    """The agent's program, its API server, and the view into its pods' folders."""

    scene: Scene
    api: FakeApi
    port: int
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(
        self, *more: str, says: str = "ok\n", **changed: object
    ) -> asyncio.subprocess.Process:
        """Start the agent and wait until it is ready, or says what it waits for.

        `changed` are options that are others than usual; None: left out.
        """
        inventory = self.scene.root / "cards.yaml"
        card = {"index": 0, "uuid": UUID, "memoryMiB": 16384}
        inventory.write_text(json.dumps({"devices": [card]}))
        arguments = {
            "node": "node-1",
            "inventory": inventory,
            "state": self.scene.root,
            "libraries": self.scene.native,
            "kubeconfig": self.api.kubeconfig(self.scene.root),
            "listen": f"127.0.0.1:{self.port}",
            "lease-ms": 25,
            # The caps of these tests are smaller than any context.
            "context-mib": 0,
            "mode": "fair",
        } | changed
        options = [f"--{key}={value}" for key, value in arguments.items() if value is not None]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gpu_shim", *options, *more),
            cwd=ROOT,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.processes.append(process)
        await self.reads("readyz", lambda text: text == says)
        return process

    async def reads(self, page: str, holds: Callable[[str], bool]) -> str:
        """The page as soon as it is as wanted."""
        text, end = "", asyncio.get_running_loop().time() + DONE_S
        async with aiohttp.ClientSession() as session:
            while asyncio.get_running_loop().time() < end:
                try:
                    async with session.get(f"http://127.0.0.1:{self.port}/{page}") as answer:
                        text = await answer.text()
                    if holds(text):
                        return text
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.05)
        raise AssertionError(f"{page}: {text}")


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    await scene.stop()
    (scene.root / "pods").mkdir()
    port = free_port()
    node = gpu_node(("a", 250, 64), ("b", 750, 100))
    async with FakeApi([listing(node)], [(200, "")], [(200, node)]) as api:
        made = Node(scene, api, port)
        yield made
        for process in made.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_rows_become_caps_and_metrics_and_go_with_their_pods(node: Node) -> None:
    process = await node.start()
    assert await node.scene.ask("pods/a", "begin(); tell(memory())") == [64, 64]
    program = await node.scene.run("pods/b", "begin(); plain(40 * MIB); tell(memory()); hear()")
    assert await program.answer() == [60, 100]
    used = (
        f'ballast_gpu_memory_used_bytes{{card="{UUID}",namespace="team",pod="pod-b"}} 4.194304e+07'
    )
    await node.reads("metrics", lambda text: used in text)
    changed = {"type": "MODIFIED", "object": gpu_node(("b", 750, 100), version="6")}
    node.api.watches = [(200, json.dumps(changed) + "\n")]
    await until(lambda: not node.scene.home("pods/a").exists())
    await until(lambda: node.api.n_seen("write") >= 1)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def bereaved(node: Node) -> Running:
    """A program that holds 40 of its 64 MiB, and whose agent was killed meanwhile."""
    process = await node.start()
    code = "begin(); plain(40 * MIB); tell(1); hear(); tell([memory(), plain(30 * MIB)[0]])"
    program = await node.scene.run("pods/a", code)
    await program.answer()
    process.kill()
    await process.wait()
    return program


async def holds_on(program: Running) -> None:
    """Its memory is what it was, and its cap holds."""
    await program.say()
    assert await program.answer() == [[24, 64], 2]


async def test_an_agent_that_is_killed_and_comes_back_keeps_caps_and_what_is_used(
    node: Node,
) -> None:
    program = await bereaved(node)
    await node.start()
    await node.reads("metrics", lambda text: "4.194304e+07" in text)
    await holds_on(program)


async def test_an_agent_is_not_ready_while_no_runtime_asks_it(node: Node) -> None:
    socket = node.scene.root / "nri.sock"
    await node.start(f"--nri={socket}", says=f"waiting for the container runtime at {socket}\n")
    page = await node.reads("metrics", lambda text: "runtime_connected 0.0" in text)
    assert f'ballast_gpu_card_healthy{{card="{UUID}",index="0"}} 1.0' in page


def has_opened(process: asyncio.subprocess.Process, name: str) -> bool:
    """Whether a program has a file of this name open."""
    files = Path(f"/proc/{process.pid}/fd").iterdir()
    with contextlib.suppress(FileNotFoundError):
        return any(each.readlink().name == name for each in files)
    return False


async def test_an_agent_that_starts_while_the_api_server_is_away_waits_and_caps_hold(
    node: Node,
) -> None:
    program = await bereaved(node)
    there, node.api.lists = node.api.lists, [(500, "")]
    await node.start(says="waiting for the GpuNode of this node\n")
    await holds_on(program)
    node.api.lists = there
    await node.reads("readyz", lambda text: text == "ok\n")
    assert await node.scene.ask("pods/a", "begin(); tell(memory()[1])") == 64


async def test_without_the_api_server_figures_and_caps_go_on_and_the_report_comes_later(
    node: Node,
) -> None:
    node.api.writes = [(500, "")]
    await node.start()
    await until(lambda: node.api.n_seen("write") >= 2)
    assert await node.scene.ask("pods/a", "begin(); tell(memory())") == [64, 64]
    await node.reads("metrics", lambda text: 'pod="pod-a"' in text)
    node.api.writes = [(200, gpu_node())]
    n_refused = node.api.n_seen("write")
    await until(lambda: node.api.n_seen("write") > n_refused)


async def test_an_agent_lives_and_is_not_ready_until_the_driver_is_there(
    node: Node, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKECUDA_STATE", str(node.scene.card.path))
    library = node.scene.root / "libnvidia-ml.so.1"
    asked = f"--nvml={library}"
    await node.start(asked, says="waiting for the driver\n", inventory=None)
    assert await node.reads("healthz", bool) == "ok\n"
    # At once whole: a process that maps half a library is ended by SIGBUS.
    whole = library.with_suffix(".new")
    shutil.copy(driver / library.name, whole)
    whole.rename(library)
    await node.reads("readyz", lambda text: text == "ok\n")
    assert await node.scene.ask("pods/a", "begin(); tell(memory())") == [64, 64]


async def test_a_second_agent_waits_until_the_first_is_gone(node: Node) -> None:
    first = await node.start()
    program = await node.scene.run("pods/a", "begin(); tell(memory()); hear(); tell(memory())")
    assert await program.answer() == [64, 64]
    waiting = asyncio.create_task(node.start())
    await until(lambda: len(node.processes) == 2 and has_opened(node.processes[1], "lock"))
    first.send_signal(signal.SIGTERM)
    assert await first.wait() == 0
    await waiting
    await program.say()
    assert await program.answer() == [64, 64]

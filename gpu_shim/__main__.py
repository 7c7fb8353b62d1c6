"""`python -m gpu_shim`: the agent of one node, until it is stopped."""

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec
import structlog
from aiohttp import web

from extender.api import logs
from extender.kube.client import Client
from extender.kube.errors import KubeError, Misconfigured, NotFound
from extender.kube.reflector import Reflector
from extender.kube.resources import GPU_NODES, NODE_POOLS
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.enforce import Enforcer
from gpu_shim.agent.follower import Follower
from gpu_shim.agent.inventory import InventoryError, read_inventory
from gpu_shim.agent.observe import build_app
from gpu_shim.arbiter.pages import Library
from gpu_shim.arbiter.server import Arbiter
from gpu_shim.native.build import build
from gpu_shim.policy.leases import Settings
from gpu_shim.policy.shares import Mode

MS: Final = 1_000_000
REPORT_RETRY_S: Final = 5.0
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)

log = structlog.get_logger("gpu_shim")


@dataclass(slots=True, frozen=True)
class Options:
    """Where things are on the node, and how time is dealt."""

    node: str
    inventory: Path
    state: Path
    libraries: Path
    kubeconfig: str
    host: str
    port: int
    is_audited: bool
    is_evicting: bool
    mode: Mode | Literal["off", "pool"]
    settings: Settings


async def serve(options: Options) -> None:
    """Follow the node's GpuNode until SIGTERM or SIGINT."""
    devices = read_inventory(options.inventory)
    if not (options.libraries / "libballast-pages.so").exists():
        build(options.libraries)
    library = Library(options.libraries / "libballast-pages.so")
    arbiter = Arbiter(library, options.settings, is_timed=options.mode != "off")
    mode: Mode = "strict" if options.mode == "strict" else "fair"
    agent = Agent(options.node, devices, arbiter, options.libraries, options.state, mode=mode)
    runner = web.AppRunner(build_app(agent), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port).start()
    try:
        async with await Client.connect(
            options.kubeconfig or None, user_agent="ballast-agent"
        ) as api:
            follower = Follower(agent, is_by_pool=options.mode == "pool")
            selector = f"metadata.name={options.node}"
            node = Reflector(api, GPU_NODES, follower.take, field_selector=selector)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(arbiter.run())
                tasks.create_task(node.run())
                if options.mode == "pool":
                    tasks.create_task(Reflector(api, NODE_POOLS, follower.take).run())
                tasks.create_task(report(api, agent))
                if options.is_audited:
                    tasks.create_task(Enforcer(api, agent, options.is_evicting).run())
    finally:
        await runner.cleanup()


async def report(api: Client, agent: Agent) -> None:
    """Write the cards into the GpuNode's status, once there is one."""
    devices = [msgspec.to_builtins(device) for device in agent.devices]
    while True:
        try:
            patch = {"status": {"devices": devices}}
            await api.merge_patch(GPU_NODES, agent.node, patch, subresource="status")
            return
        except NotFound:
            await asyncio.sleep(REPORT_RETRY_S)
        except KubeError as error:
            log.warning("could not report the cards", node=agent.node, error=str(error))
            await asyncio.sleep(REPORT_RETRY_S)


@click.command()
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this node.")
@click.option("--inventory", type=_FILE, required=True, help="File that lists the cards.")
@click.option("--state", type=_FOLDER, default="/run/ballast", show_default=True)
@click.option("--libraries", type=_FOLDER, default="/usr/lib/ballast", show_default=True)
@click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else the service account.")
@click.option("--listen", default="127.0.0.1:8890", show_default=True, help="Health and metrics.")
@click.option("--mode", type=click.Choice(["pool", "off", "strict", "fair"]), default="pool")
@click.option("--lease-ms", type=click.IntRange(10, 10000), default=250, show_default=True)
@click.option("--precision-percent", type=click.IntRange(1, 50), default=5, show_default=True)
@click.option("--longest-gap-ms", type=click.IntRange(0, 60000), default=1000, show_default=True)
@click.option("--audit/--no-audit", "is_audited", default=False, help="Ask NVML every second.")
@click.option("--evict", "is_evicting", is_flag=True, help="Evict pods beyond their bounds.")
def main(
    listen: str, lease_ms: int, precision_percent: int, longest_gap_ms: int, **given: Any
) -> None:
    """Hold the containers of this node to their memory and their time on the GPU.

    Mode `pool`: the node's NodePool says how time is dealt, live; lease and precision too.
    """
    logs.configure()
    host, _, port = listen.rpartition(":")
    settings = Settings(lease_ms * MS, Fraction(precision_percent, 100), longest_gap_ms * MS)
    options = Options(host=host, port=int(port), settings=settings, **given)
    try:
        asyncio.run(_until_told(options))
    except* (InventoryError, Misconfigured) as errors:
        raise click.ClickException(str(errors.exceptions[0])) from None


async def _until_told(options: Options) -> None:
    task = asyncio.ensure_future(serve(options))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    main()

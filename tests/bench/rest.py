"""A cluster at rest: Ballast's writes to the API server, and the memory of its programs.

100 nodes with 600 running pods; nothing changes while writes are counted.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import cluster
from tests.bench.cost import Meter
from tests.bench.figures import Figure
from tests.bench.installed import per_second, resident
from tests.bench.throughput import make_queues
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import Installation

N_NODES: Final = 100
PODS_A_NODE: Final = 6
#: Time for the programs to write their first reports, and time in which writes are then counted.
SETTLE_S: Final = 30.0
COUNTED_S: Final = 120.0
#: The bars.
WRITES_PER_S: Final = 5.0
MEMORY_MIB: Final = 250.0


async def measure(plane: ControlPlane) -> list[Figure]:
    """Writes and CPU time per second, and MiB of each program."""
    plane.kill("kube-scheduler")
    plane.reset()
    plane.make_namespace("bench")
    nodes = cluster.seed_nodes(plane, N_NODES)
    cluster.seed_ledgers(plane, nodes, PODS_A_NODE, "bench")
    await make_queues(plane)
    installation = Installation(plane, by_token=True)
    webhooks = installation.webhooks(Path(tempfile.mkdtemp(prefix="ballast-bench-")))
    programs = (installation.control, installation.serve, webhooks)
    what = f"at rest, {N_NODES} nodes, {N_NODES * PODS_A_NODE} pods"
    try:
        await asyncio.to_thread(installation.start)
        await asyncio.to_thread(webhooks.start)
        await asyncio.sleep(SETTLE_S)
        meter = Meter({each.name: each.pid for each in programs}, plane.audit_log)
        await asyncio.sleep(COUNTED_S)
        cost = meter.read()
        memory = resident(what, programs, MEMORY_MIB)
    finally:
        webhooks.kill()
        installation.stop()
    return per_second(what, cost, COUNTED_S, WRITES_PER_S) + memory

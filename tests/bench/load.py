"""`python -m tests.bench.load KUBECONFIG OWNER`: keeps creating pods that cannot be placed.

It ends by itself after two minutes.
"""

import asyncio
import sys
import time

from extender.kube.client import Client
from extender.kube.resources import PODS
from tests.bench import cluster

LASTS_S = 120.0
PERIOD_S = 0.05
PODS_A_PERIOD = 2
#: More cards than a node has.
TOO_MUCH_MILLI = 1000 * (cluster.CARDS + 1)


async def main(kubeconfig: str, owner: str) -> None:
    """Create pods until the time is up."""
    ends = time.monotonic() + LASTS_S
    number = 0
    async with await Client.connect(kubeconfig) as client:
        while time.monotonic() < ends:
            for _ in range(PODS_A_PERIOD):
                number += 1
                pod = cluster.gated_pod(f"busy-{number}", "bench", TOO_MUCH_MILLI, owner)
                await client.create(PODS, pod, namespace="bench")
            await asyncio.sleep(PERIOD_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))

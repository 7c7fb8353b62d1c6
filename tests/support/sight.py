"""Observes a cluster through the API: bound pods and ledger rows. Waits have deadlines."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from extender.kube.client import Client
from extender.kube.errors import KubeError
from extender.kube.resources import GPU_NODES, PODS

#: Between two looks: each costs the API server and us some milliseconds, so that a long wait looks
#: less often.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.3


@dataclass(slots=True)
class Sight:
    """One observation: running pods of one namespace, and `rows` of all nodes, UID -> state."""

    pods: int = 0
    bound: set[str] = field(default_factory=set)
    rows: dict[str, str] = field(default_factory=dict)
    n_rows: int = 0

    def is_whole(self, n_pods: int) -> bool:
        """Whether exactly `n_pods` pods exist, all bound, each with one row with its cards."""
        holding = {uid for uid, state in self.rows.items() if state != "nominated"}
        return len(self.bound) == n_pods == self.n_rows and holding == self.bound


async def look(client: Client, namespace: str) -> Sight:
    """The present state."""
    sight = Sight()
    for pod in (await client.list_all(PODS, namespace=namespace)).items:
        if pod.is_terminal:
            continue
        sight.pods += 1
        if pod.spec.node_name:
            sight.bound.add(pod.metadata.uid)
    for node in (await client.list_all(GPU_NODES)).items:
        for row in node.spec.rows:
            sight.rows[row.uid] = row.state
            sight.n_rows += 1
    return sight


async def until(
    is_met: Callable[[], Awaitable[bool]], timeout_s: float, what: Callable[[], object]
) -> None:
    """Return once `is_met`, else raise AssertionError with `what()`. API errors are retried."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            if await is_met():
                return
        except KubeError:
            pass
        assert time.monotonic() < deadline, f"not seen in {timeout_s:g} s: {what()}"
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.2, LONGEST_PAUSE_S)

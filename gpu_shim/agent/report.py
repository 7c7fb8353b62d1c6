"""The status of the node's GpuNode: the cards, and conditions.

Written when it differs from what the API server shows, so another writer's changes are overwritten.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from extender.api.kinds import GpuNodeSpec, GpuNodeStatus
from extender.api.ledger import devices_status
from extender.api.objects import Condition
from extender.api.units import api_time
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, KubeError, NotFound
from extender.kube.resources import GPU_NODES
from gpu_shim.agent.agent import Agent

EVERY_S: Final = 1.0
#: The watch shows our write long before this; until then neither a successful nor a failed write is
#: repeated.
PATIENCE_S: Final = 5.0
#: Enough to start with; metrics and logs have all of them.
MOST_SENTENCES: Final = 8

CARDS_HEALTHY: Final = "CardsHealthy"
CARDS_DELIVERABLE: Final = "CardsDeliverable"
CARDS_MAPPED: Final = "CardsMapped"
DRIVER_KNOWN: Final = "DriverKnown"
RUNTIME_CONNECTED: Final = "RuntimeConnected"
PODS_WITHIN_BOUNDS: Final = "PodsWithinBounds"

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True, frozen=True)
class NodeCondition:
    """A condition of the node. `why_not` are sentences; without any, it is true."""

    type: str
    why_not: Sequence[str]
    reason: str = ""

    def condition(self, before: Sequence[Condition]) -> Condition:
        """The condition for the API, with the time of its last transition."""
        status = "False" if self.why_not else "True"
        since = next(
            (
                each.last_transition_time
                for each in before
                if (each.type, each.status) == (self.type, status)
            ),
            None,
        )
        left = len(self.why_not) - MOST_SENTENCES
        more = [f"and {left} more"] if left > 0 else []
        return Condition(
            type=self.type,
            status=status,
            reason=(self.reason or f"Not{self.type}") if self.why_not else self.type,
            message="; ".join([*self.why_not[:MOST_SENTENCES], *more]),
            last_transition_time=since or api_time(datetime.now(UTC)),
        )


@dataclass(slots=True)
class NodeReporter:
    """Keeps the status up to date. Creates the GpuNode if it does not exist."""

    api: Client
    agent: Agent
    statements: Callable[[], Sequence[NodeCondition]]
    _sent: dict[str, Any] = field(default_factory=dict)
    _sent_at_s: float = 0.0
    #: Why the last write failed; empty after one that did not.
    _failure: str = ""

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            if self.agent.is_synced:
                await self._once()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.agent.changes(), EVERY_S)

    async def _once(self) -> None:
        shown = self.agent.ledger.status if self.agent.ledger is not None else None
        conditions = shown.conditions if shown is not None else []
        wanted = {
            **msgspec.to_builtins(devices_status(self.agent.devices)),
            "conditions": [
                msgspec.to_builtins(each.condition(conditions)) for each in self.statements()
            ],
        }
        said = {key: value for key, value in wanted.items() if value}
        if shown is not None and said == own_part(shown):
            return
        now_s = asyncio.get_running_loop().time()
        may_wait = wanted == self._sent or self._failure
        if may_wait and now_s - self._sent_at_s < PATIENCE_S:
            return
        self._sent, self._sent_at_s = wanted, now_s
        try:
            await self._write(wanted)
            self._failure = ""
        except KubeError as error:
            if (why := str(error)) != self._failure:
                _log.warning("could not report the cards", node=self.agent.node, error=why)
            self._failure = why

    async def _write(self, status: dict[str, Any]) -> None:
        patch = {"status": status}
        try:
            await self.api.merge_patch(GPU_NODES, self.agent.node, patch, subresource="status")
        except NotFound:
            spec = msgspec.to_builtins(GpuNodeSpec.of([]))
            body = {"metadata": {"name": self.agent.node}, "spec": spec}
            with contextlib.suppress(AlreadyExists):
                await self.api.create(GPU_NODES, body)
            await self.api.merge_patch(GPU_NODES, self.agent.node, patch, subresource="status")


def own_part(shown: GpuNodeStatus) -> dict[str, Any]:
    """The part of the status that the agent writes; the controller writes the rest."""
    said = msgspec.to_builtins(shown)
    return {
        key: said[key] for key in ("devices", "cards", "healthyCards", "conditions") if key in said
    }

"""Passes the node's GpuNode and its node pool from the API to the agent."""

from collections.abc import Callable
from dataclasses import dataclass, field

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuNode, GpuNodePool, GpuNodePoolSpec
from extender.api.names import DEFAULT_POOL
from gpu_shim.agent.agent import Agent


@dataclass(slots=True)
class Follower:
    """Updates the agent with every change, once both kinds are known.

    With `is_by_pool` the node's pool determines time slicing and memory lending; without a pool,
    the defaults of a pool apply. `begin` is called first, with the GpuNode as it was found.
    """

    agent: Agent
    is_by_pool: bool
    begin: Callable[[GpuNode | None], None] | None = None
    node: GpuNode | None = None
    pools: dict[str, GpuNodePoolSpec] = field(default_factory=dict)
    synced: set[type] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """Apply one event of either reflector."""
        if isinstance(event, Synced):
            self.synced.add(event.kind)
        elif isinstance(event, Upserted):
            self._upsert(event.obj)
        else:
            self._remove(event)
        if self.synced >= ({GpuNode, GpuNodePool} if self.is_by_pool else {GpuNode}):
            if self.begin is not None:
                self.begin(self.node)
                self.begin = None
            if self.is_by_pool:
                rules = self._rules()
                self.agent.is_lending = rules.memory_lending == "Enabled"
                self.agent.slice_by(rules.time_slicing)
            self.agent.apply(self.node)

    def _upsert(self, obj: object) -> None:
        if isinstance(obj, GpuNodePool):
            self.pools[obj.metadata.name] = obj.spec
        elif isinstance(obj, GpuNode) and obj.metadata.name == self.agent.node:
            self.node = obj

    def _remove(self, event: Removed) -> None:
        if event.kind is GpuNodePool:
            self.pools.pop(event.name, None)
        elif event.name == self.agent.node:
            self.node = None

    def _rules(self) -> GpuNodePoolSpec:
        """The spec of this node's pool."""
        pool = self.node.pool if self.node is not None else DEFAULT_POOL
        return self.pools.get(pool, GpuNodePoolSpec())

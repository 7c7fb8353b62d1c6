"""What the API says about this node, handed to the agent: its GpuNode and its node pool."""

from collections.abc import Callable
from dataclasses import dataclass, field

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import GpuNode, GpuNodePool, GpuNodePoolSpec
from extender.api.names import DEFAULT_POOL
from gpu_shim.agent.agent import Agent


@dataclass(slots=True)
class Follower:
    """Tells the agent whatever changes, once both kinds are known.

    With `is_by_pool` the node's pool says how time is dealt and whether memory is lent; a node
    without one does neither.
    `begin` is told of the GpuNode as it was found, ahead of everything else.
    """

    agent: Agent
    is_by_pool: bool
    begin: Callable[[GpuNode | None], None] | None = None
    node: GpuNode | None = None
    pools: dict[str, GpuNodePoolSpec] = field(default_factory=dict)
    synced: set[type] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """One event of either reflector."""
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
        """What the pool of this node says."""
        pool = self.node.pool if self.node is not None else DEFAULT_POOL
        return self.pools.get(pool, GpuNodePoolSpec())

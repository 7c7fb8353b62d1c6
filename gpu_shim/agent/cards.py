"""The node's cards: which exist, their health, and their users.

There are three sources: the driver (or a file) lists the cards, `Health` holds their faults, and,
if a device plugin owns the cards, kubelet tells which card it gave for which index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from extender.api.kinds import Device, GpuNode
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.health import Health
from gpu_shim.agent.indices import Hold, keep_indices, settle


@dataclass(slots=True)
class Cards:
    """Updates the agent whenever the cards change.

    With `is_by_plugin` a card is used only once kubelet has given it to us; until kubelet was asked
    (`holds` is None), no card is.
    """

    agent: Agent
    found: Sequence[Device]
    health: Health
    is_by_plugin: bool = False
    holds: Sequence[Hold] | None = None
    conflicts: list[str] = field(default_factory=list)
    _before: Sequence[Device] = ()
    _node: GpuNode | None = None

    def begin(self, node: GpuNode | None) -> None:
        """Start from the cards and users that were known before this agent started."""
        self._node = node
        self._before = node.status.devices if node is not None else ()
        self.publish()

    def publish(self) -> None:
        """Combine the sources and update the agent."""
        node = self.agent.ledger or self._node
        used = {card.index for row in node.spec.rows for card in row.cards} if node else set()
        # An unhealthy card is shown, and looked for, even if no pod uses it.
        used |= {each.index for each in self._before if each.uuid in self.health.ill}
        devices = [self._with_health(each) for each in self._kept(used)]
        unmapped = frozenset[int]()
        if self.is_by_plugin:
            meaning = settle(devices, self.holds or (), self.agent.running())
            devices, unmapped = meaning.devices, meaning.unheld
            self.conflicts = meaning.conflicts
        self._before = devices
        self.agent.map_cards(devices, unmapped)

    def _kept(self, used: set[int]) -> Sequence[Device]:
        return keep_indices(self.found, self._before, used)

    def _with_health(self, device: Device) -> Device:
        if device.uuid in self.health.ill:
            return msgspec.structs.replace(device, health="Unhealthy")
        return device

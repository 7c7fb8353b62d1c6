"""The place of a task: one type for files, decisions, and output."""

from dataclasses import dataclass

from extender.api.kinds import CardShare
from extender.scenario.model.values import Status


@dataclass(slots=True, frozen=True)
class Place:
    """A task's status and cards; `from_node` and `from_cards` are what a moved task is leaving."""

    status: Status = "pending"
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    from_node: str = ""
    from_cards: tuple[CardShare, ...] = ()

    @property
    def is_moved(self) -> bool:
        """Whether the task is leaving one node for another that it already has."""
        return bool(self.from_node)

    @property
    def has_now(self) -> bool:
        """Whether it holds its cards in this cycle: it runs there, or is terminating."""
        return self.status in ("bound", "running", "evicted")

    @property
    def has_later(self) -> bool:
        """Whether it holds its cards after all terminating tasks have ended."""
        return self.status in ("bound", "running", "nominated")


PENDING = Place()

"""Where a task is: one value for what a file says, what is decided, and what is written out."""

from dataclasses import dataclass

from extender.api.kinds import CardShare
from extender.scenario.model.values import Status


@dataclass(slots=True, frozen=True)
class Place:
    """What one task is and holds; `from_node` and `from_cards` are what a moved one leaves."""

    status: Status = "pending"
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    from_node: str = ""
    from_cards: tuple[CardShare, ...] = ()

    @property
    def is_moved(self) -> bool:
        """Whether it leaves one node and has its next one already."""
        return bool(self.from_node)

    @property
    def has_now(self) -> bool:
        """Whether it holds its place in this cycle: it runs there, or is yet to leave."""
        return self.status in ("bound", "running", "evicted")

    @property
    def has_later(self) -> bool:
        """Whether it holds its place once all that leave have left."""
        return self.status in ("bound", "running", "nominated")


PENDING = Place()

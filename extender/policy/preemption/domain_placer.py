"""Places for a taker as a whole, domain by domain, once it is known who leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.policy.placement.node_filter import Frame
from extender.policy.plan import Placement
from extender.policy.preemption.statement import Trial
from extender.state.model import PodView


@dataclass(slots=True)
class Reseating:
    """A Placer that takes what is free later, in a trial."""

    trial: Trial

    def place_in(self, pods: Sequence[PodView], pool: str, frame: Frame) -> list[Placement] | None:
        """As `topology.Placer.place_in`."""
        if not self.trial.seat_all(pods, frame):
            return None
        return [self.trial.seats[pod.uid].placement for pod in pods]

    def cost(self, pods: Sequence[PodView], pool: str, frame: Frame) -> tuple[int, ...]:
        """Nobody leaves, so it is the same everywhere."""
        return ()

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return self.trial.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`."""
        self.trial.rollback(mark)

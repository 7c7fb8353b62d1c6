"""Events of the scheduler's gates, for metrics of waits."""

from typing import Protocol


class GateObserver(Protocol):
    """Observes what containers wait for. Times are those of the event."""

    def gate_opened(self, container: str, card: str, now_ns: int) -> None:
        """A gate is open."""

    def gate_closed(self, container: str, card: str) -> None:
        """A gate is closed; `demand` follows."""

    def demand(self, container: str, card: str, is_busy: bool, now_ns: int) -> None:
        """Whether the container has work to launch."""

    def forget(self, container: str) -> None:
        """The container is gone."""

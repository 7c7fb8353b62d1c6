"""The values that the scheduler and the fast path exchange."""

from dataclasses import dataclass

#: No container slot, or no card.
NONE = -1


@dataclass(slots=True, frozen=True)
class CardState:
    """The fast path's state of one card.

    `gate` is the last gate that was set, `holder` the slot of its container (`NONE` if that is
    gone). While `closed_ns` is not 0, the gate has been closed since then and up to `n_awaited`
    processes may still run work on the card.
    """

    holder: int
    gate: int
    closed_ns: int
    n_awaited: int


@dataclass(slots=True, frozen=True)
class Plan:
    """The fast path's next steps on a card.

    At `close_ns` (0: the gate is already closed) it closes the holder's gate; if `is_renewal`, it
    opens that gate for another lease instead. Once the holder has drained, at `latest_ns` at the
    latest, it opens the gate of `successor` (container slot, index of the card in that container)
    for `run_ns`, or without a deadline if that is 0. Without a successor the scheduler decides.
    """

    close_ns: int
    latest_ns: int
    successor: tuple[int, int] = (NONE, 0)
    run_ns: int = 0
    is_renewal: bool = False


@dataclass(slots=True, frozen=True)
class Handover:
    """A plan that the fast path carried out on a card: when it closed the holder's gate and opened
    the successor's (0: it did not), and how long the holder took to drain. A renewal only opens; a
    gate may open long after the event that reported its closing."""

    card: int
    closed_ns: int
    opened_ns: int
    drain_ns: int


@dataclass(slots=True, frozen=True)
class Events:
    """Everything that happened since the scheduler's last decision; `now_ns` is after all of it.

    `containers` are the slots of containers with a process that sent a message or ended, `ended`
    the (container slot, connection) of processes that ended.
    """

    now_ns: int
    handovers: list[Handover]
    containers: list[int]
    ended: list[tuple[int, int]]

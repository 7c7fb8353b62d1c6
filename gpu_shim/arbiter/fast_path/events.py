"""The values that the scheduler and the fast path exchange."""

from dataclasses import dataclass

#: No container slot, or no card.
NONE = -1


@dataclass(slots=True, frozen=True)
class CardState:
    """One card, as the fast path holds it.

    `gate` is the gate that was set last, `holder` the slot of its container (`NONE` if that is
    gone). While `closed_ns` is not 0, the gate has been closed since then and up to `n_awaited`
    processes may still run work on the card.
    """

    holder: int
    gate: int
    closed_ns: int
    n_awaited: int


@dataclass(slots=True, frozen=True)
class Plan:
    """What the fast path does next on a card, without asking.

    At `close_ns` (0: the gate is closed already) it closes the holder's gate; if `is_renewal`, it
    opens that gate for another lease instead. When the holder has drained, at `latest_ns` at the
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
    """What the fast path carried out on a card: when it closed the holder's gate, when it opened
    the successor's (0: it did not), and how long the holder then took to drain. A renewal only
    opens; a gate may open long after the event that reported its closing."""

    card: int
    closed_ns: int
    opened_ns: int
    drain_ns: int


@dataclass(slots=True, frozen=True)
class Events:
    """Everything that happened since the scheduler last looked; `now_ns` is after all of it.

    `containers` are the slots of containers of which a process sent a message or ended, `ended`
    the (container slot, connection) of processes that ended.
    """

    now_ns: int
    handovers: list[Handover]
    containers: list[int]
    ended: list[tuple[int, int]]

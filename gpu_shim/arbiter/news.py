"""What the arbiter's thread tells Python: what it did by itself, and what processes said."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Act:
    """What happened on a card as was decided before, in this order; 0 ns: it did not.

    The holder's gate closed, then its successor's opened; of a holder that goes on, only that.
    """

    card: int
    closed_ns: int
    closed_generation: int
    passed_ns: int
    passed_generation: int


@dataclass(slots=True, frozen=True)
class Said:
    """What a process said lately, the last of each kind for each card of its container.

    `wants` are cards that it wants or (False) does not any more, `drained` generations of gates
    that it has drained.
    """

    line: int
    wants: list[tuple[int, bool]]
    drained: list[tuple[int, int]]
    is_gone: bool


@dataclass(slots=True, frozen=True)
class News:
    """Everything since the last time. `now_ns` is after all acts."""

    now_ns: int
    acts: list[Act]
    said: list[Said]


@dataclass(slots=True, frozen=True)
class Order:
    """What the thread does on a card by itself. A gate is (door, the card's place behind it).

    At `close_ns` (0: it is closed already) it closes the gate of `holder`, or, in a renewal, opens
    it anew. When the holder's processes have drained, and no later than `latest_ns`, it opens that
    of `following` for `run_ns` (0: without an end); -1 is nobody.
    """

    holder: tuple[int, int]
    close_ns: int
    latest_ns: int
    following: tuple[int, int] = (-1, 0)
    run_ns: int = 0
    is_renewal: bool = False

"""Integrals and counts of a simulation, for every user of every project.

Integers throughout: milli-GPU-seconds and seconds, so the same run gives the same figures.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from extender.scenario.longrun.owed import Owner


@dataclass(slots=True)
class Sums:
    """The figures of one owner. `deprived` is what it was owed but did not hold; `lost` is what it
    held for work that was lost, or for restarts. `longest_without_s` is the longest time for which
    it held nothing although it was owed something."""

    arrived: int = 0
    ended: int = 0
    waiting: int = 0
    owed: int = 0
    held: int = 0
    deprived: int = 0
    lost: int = 0
    evictions: int = 0
    repeated: int = 0
    moves: int = 0
    longest_wait_s: int = 0
    longest_without_s: int = 0

    def add(self, other: "Sums") -> None:
        """Add the other's sums; of times, keep the longest."""
        for name in ("arrived", "ended", "waiting", "owed", "held", "deprived", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("evictions", "repeated", "moves"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("longest_wait_s", "longest_without_s"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


@dataclass(slots=True)
class LongRunMeter:
    """Sums up to `now_s`; `empty` counts the seconds of GPU nodes without tasks.

    Queues are deprived by what they hold together, so theirs are not the sums of their users'.
    """

    now_s: int = 0
    users: dict[Owner, Sums] = field(default_factory=dict)
    queues: dict[str, Sums] = field(default_factory=dict)
    idle: int = 0
    idle_while_waiting: int = 0
    empty: int = 0
    _held: dict[Owner, int] = field(default_factory=dict)
    _owed: dict[Owner, int] = field(default_factory=dict)
    _without_since: dict[str | Owner, int] = field(default_factory=dict)
    _stops: Counter[str] = field(default_factory=Counter)
    _capacity: int = 0
    _n_empty: int = 0
    _is_waited: bool = False

    def of(self, owner: Owner) -> tuple[Sums, Sums]:
        """The sums of the project and of its user."""
        of_queue = self.queues.setdefault(owner[0], Sums())
        return of_queue, self.users.setdefault(owner, Sums())

    def advance(self, now_s: int) -> None:
        """Integrate the current state until `now_s`."""
        took_s = now_s - self.now_s
        if not took_s:
            return
        held_of, owed_of = self._by_queue(self._held), self._by_queue(self._owed)
        for queue in held_of.keys() | owed_of.keys():
            sums = self.queues.setdefault(queue, Sums())
            self._pass(sums, queue, (owed_of[queue], held_of[queue]), now_s)
        for owner in self._held.keys() | self._owed.keys():
            owed, held = self._owed.get(owner, 0), self._held.get(owner, 0)
            self._pass(self.of(owner)[1], owner, (owed, held), now_s)
        idle = self._capacity - sum(held_of.values())
        self.idle += idle * took_s
        self.empty += self._n_empty * took_s
        if self._is_waited:
            self.idle_while_waiting += idle * took_s
        self.now_s = now_s

    def tell(
        self, held: Mapping[Owner, int], capacity: int, n_empty: int, *, is_waited: bool
    ) -> None:
        """Set the current allocations and empty nodes; `is_waited`: a pod is pending."""
        self._held, self._capacity, self._is_waited = dict(held), capacity, is_waited
        self._n_empty = n_empty

    def tell_owed(self, owed: Mapping[Owner, int]) -> None:
        """Set what is owed from now on."""
        self._owed = dict(owed)

    def stop(self, owner: Owner, task: str, lost: int, *, is_move: bool) -> None:
        """A task is evicted or moved, and `lost` milli-GPU-seconds were in vain."""
        for sums in self.of(owner):
            sums.lost += lost
            if is_move:
                sums.moves += 1
            else:
                sums.evictions += 1
                sums.repeated += self._stops[task] > 0
        if not is_move:
            self._stops[task] += 1

    def lose(self, owner: Owner, lost: int) -> None:
        """`lost` milli-GPU-seconds were for a restart."""
        for sums in self.of(owner):
            sums.lost += lost

    def count(self, owner: Owner, name: str, n: int = 1) -> None:
        """Count arrivals, ends, or pending pods."""
        for sums in self.of(owner):
            setattr(sums, name, getattr(sums, name) + n)

    def note_wait(self, owner: Owner, waited_s: int) -> None:
        """Record how long a pod was pending."""
        for sums in self.of(owner):
            sums.longest_wait_s = max(sums.longest_wait_s, waited_s)

    def _pass(self, sums: Sums, key: str | Owner, amounts: tuple[int, int], now_s: int) -> None:
        owed, held = amounts
        took_s = now_s - self.now_s
        sums.owed += owed * took_s
        sums.held += held * took_s
        sums.deprived += max(0, owed - held) * took_s
        if held or not owed:
            self._without_since.pop(key, None)
            return
        since = self._without_since.setdefault(key, self.now_s)
        sums.longest_without_s = max(sums.longest_without_s, now_s - since)

    @staticmethod
    def _by_queue(amounts: Mapping[Owner, int]) -> "Counter[str]":
        found: Counter[str] = Counter()
        for (queue, _), amount in amounts.items():
            found[queue] += amount
        return found


def total(each: Iterable[Sums]) -> Sums:
    """The sum of all."""
    found = Sums()
    for sums in each:
        found.add(sums)
    return found

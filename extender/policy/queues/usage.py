"""What queues used in the past, fading by half in every half-life: pure, and in integers.

An account is what was held times the seconds it was held for, in milli-GPU-seconds,
milli-CPU-seconds and MiB-seconds, with what is older counting less. The controller keeps one for
each queue and node pool, and one for what the pool has; a queue's part of the latter is what bends
its weight (`fairshare`). Accounts may be kept anywhere and taken up again: only the time that has
has passed since counts.

`HeldLately` is the same on a fixed scale for every node pool: what each queue held on average over
about the last day. Turns go by it where queues hold equal parts; it bends no share and is not kept
across leaders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Final

from extender.state.model import LATELY, NOTHING, Amounts

_PPM: Final = 1_000_000
#: Fixed-point numbers here are integers in units of 2**-64.
_BITS: Final = 64
_ONE: Final = 1 << _BITS
#: 1 / ln 2: for how many half-lives an account of what is held for ever stands.
_MEAN_LIFE: Final = 26_613_026_195_688_644_983
#: Half-life of what queues held lately, in seconds: a day, so that two queues that take turns have
#: had equal parts of every day or two, however long their jobs are.
LATELY_HALF_LIFE_S: Final = 86_400
#: After so many half-lives nothing is left of any amount that there can be.
_FORGOTTEN: Final = 128
#: A sum of less than a thousandth of a unit is as good as none.
_FADED: Final = _ONE // 1000


def decay(usage: Amounts, elapsed_s: int, half_life_s: int) -> Amounts:
    """The account after `elapsed_s` seconds in which nothing was held."""
    left = _left(elapsed_s, half_life_s)
    gpu, cpu, memory = (_nearest(amount * left) for amount in usage)
    return gpu, cpu, memory


def add(usage: Amounts, held: Amounts, elapsed_s: int) -> Amounts:
    """The account after `held` was held for `elapsed_s` seconds, without fading."""
    gpu, cpu, memory = (amount + have * elapsed_s for amount, have in zip(usage, held, strict=True))
    return gpu, cpu, memory


def advance(usage: Amounts, held: Amounts, elapsed_s: int, half_life_s: int) -> Amounts:
    """The account after `elapsed_s` seconds in which `held` was held, each second fading since.

    The same, but for rounding, however often it is asked in between.
    """
    faded = _ONE - _left(elapsed_s, half_life_s)
    seconds = half_life_s * _MEAN_LIFE * faded >> _BITS
    gpu, cpu, memory = (
        amount + _nearest(have * seconds)
        for amount, have in zip(decay(usage, elapsed_s, half_life_s), held, strict=True)
    )
    return gpu, cpu, memory


def as_ppm(usage: Amounts, capacity: Amounts) -> Amounts:
    """Millionths of the pool's account that the queue's account is; 0 of what the pool lacks."""
    gpu, cpu, memory = (
        min(_PPM, used * _PPM // had) if had > 0 else 0
        for used, had in zip(usage, capacity, strict=True)
    )
    return gpu, cpu, memory


@dataclass(slots=True)
class HeldLately:
    """Averages of what queues held, by queue and node pool, in units of 1/`LATELY`.

    What was held a half-life ago counts half as much as what is held now. The average is over the
    time that was counted, so it tells as much after an hour as after a week.
    """

    averages: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    _sums: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    _weight: int = 0

    def step(self, held: Mapping[tuple[str, str], Amounts], elapsed_s: int) -> None:
        """Count that each queue held this for `elapsed_s` seconds; costs the queues that hold or
        held anything."""
        left = _left(elapsed_s, LATELY_HALF_LIFE_S)
        new = _ONE - left
        self._weight = (self._weight * left >> _BITS) + new
        sums: dict[tuple[str, str], Amounts] = {}
        for key in self._sums.keys() | held.keys():
            before, now = self._sums.get(key, NOTHING), held.get(key, NOTHING)
            gpu, cpu, memory = (
                (was * left >> _BITS) + has * new for was, has in zip(before, now, strict=True)
            )
            sums[key] = gpu, cpu, memory
        self._sums = {key: each for key, each in sums.items() if max(each) > _FADED}
        self.averages = {key: self._average(each) for key, each in self._sums.items()}

    def _average(self, sums: Amounts) -> Amounts:
        gpu, cpu, memory = (LATELY * each // max(1, self._weight) for each in sums)
        return gpu, cpu, memory


def _nearest(fixed: int) -> int:
    """The whole number nearest to a fixed-point one."""
    return (fixed + _ONE // 2) >> _BITS


def _left(elapsed_s: int, half_life_s: int) -> int:
    """2 ** -(elapsed_s / half_life_s) in fixed point."""
    halvings, rest = divmod(max(0, elapsed_s), half_life_s)
    if halvings >= _FORGOTTEN:
        return 0
    left = _ONE
    part = (rest << len(_ROOTS)) // half_life_s
    for at, root in enumerate(_ROOTS):
        if part >> (len(_ROOTS) - 1 - at) & 1:
            left = left * root >> _BITS
    return left >> halvings


def _roots() -> tuple[int, ...]:
    """The square root of one half, its square root, and so on, in fixed point."""
    roots = [isqrt(_ONE * _ONE // 2)]
    while len(roots) < _BITS:
        roots.append(isqrt(roots[-1] << _BITS))
    return tuple(roots)


_ROOTS: Final = _roots()

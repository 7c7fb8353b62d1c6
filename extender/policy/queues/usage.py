"""Past use of queues, halved in every half-life; integers only.

An account is the amount held times the seconds held, in milli-GPU-seconds, milli-CPU-seconds and
MiB-seconds, decayed by age. The controller keeps one account per queue and node pool, and one for
the pool's capacity. The ratio of the two bends the queue's weight (`fairshare`). An account may be
stored and resumed at any time, since only the elapsed time matters.

`HeldLately` has the average that each queue held over about the last day. It orders queues that
hold equal fractions of their due. It bends no share and is not kept across leaders.
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
#: 1 / ln 2: an account of a constant amount converges to the amount times this many half-lives.
_MEAN_LIFE: Final = 26_613_026_195_688_644_983
#: Half-life of `HeldLately`, in seconds: a day, so that two alternating queues get equal parts of
#: every day or two, however long their jobs are.
LATELY_HALF_LIFE_S: Final = 86_400
#: After this many half-lives any possible amount has decayed to nothing.
_FORGOTTEN: Final = 128
#: Sums below a thousandth of a unit are dropped.
_FADED: Final = _ONE // 1000


def decay(usage: Amounts, elapsed_s: int, half_life_s: int) -> Amounts:
    """The account after `elapsed_s` seconds with nothing held."""
    left = _decay_factor(elapsed_s, half_life_s)
    gpu, cpu, memory = (_nearest(amount * left) for amount in usage)
    return gpu, cpu, memory


def advance(usage: Amounts, held: Amounts, elapsed_s: int, half_life_s: int) -> Amounts:
    """The account after `held` was held for `elapsed_s` seconds, with decay.

    Except for rounding, the result does not depend on the number of steps in between.
    """
    faded = _ONE - _decay_factor(elapsed_s, half_life_s)
    seconds = half_life_s * _MEAN_LIFE * faded >> _BITS
    gpu, cpu, memory = (
        amount + _nearest(have * seconds)
        for amount, have in zip(decay(usage, elapsed_s, half_life_s), held, strict=True)
    )
    return gpu, cpu, memory


def as_ppm(usage: Amounts, capacity: Amounts) -> Amounts:
    """The queue's account in millionths of the pool's; 0 for resources that the pool lacks."""
    gpu, cpu, memory = (
        min(_PPM, used * _PPM // had) if had > 0 else 0
        for used, had in zip(usage, capacity, strict=True)
    )
    return gpu, cpu, memory


@dataclass(slots=True)
class HeldLately:
    """Average amounts held, by queue and node pool, in units of 1/`LATELY`.

    Weights halve with each half-life of age. The average is over the time counted so far, so it is
    as valid after an hour as after a week.
    """

    averages: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    _sums: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    _weight: int = 0

    def step(self, held: Mapping[tuple[str, str], Amounts], elapsed_s: int) -> None:
        """Count `elapsed_s` seconds of `held`; costs the queues that hold or held anything."""
        kept = _decay_factor(elapsed_s, LATELY_HALF_LIFE_S)
        new = _ONE - kept
        self._weight = (self._weight * kept >> _BITS) + new
        sums: dict[tuple[str, str], Amounts] = {}
        for key in self._sums.keys() | held.keys():
            before, now = self._sums.get(key, NOTHING), held.get(key, NOTHING)
            gpu, cpu, memory = (
                (was * kept >> _BITS) + has * new for was, has in zip(before, now, strict=True)
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


def _decay_factor(elapsed_s: int, half_life_s: int) -> int:
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

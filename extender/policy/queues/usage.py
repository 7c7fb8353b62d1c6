"""What queues used in the past, fading by half in every half-life: pure, and in integers.

An account is what was held times the seconds it was held for, in milli-GPU-seconds,
milli-CPU-seconds and MiB-seconds, with what is older counting less. The controller keeps one for
each queue and node pool, and one for what the pool has; a queue's part of the latter is what bends
its weight (`fairshare`). Accounts may be kept anywhere and taken up again: only the time that has
passed since counts.
"""

from math import isqrt
from typing import Final

from extender.state.model import Amounts

_PPM: Final = 1_000_000
#: Fixed-point numbers here are integers in units of 2**-64.
_BITS: Final = 64
_ONE: Final = 1 << _BITS
#: 1 / ln 2: for how many half-lives an account of what is held for ever stands.
_MEAN_LIFE: Final = 26_613_026_195_688_644_983
#: After so many half-lives nothing is left of any amount that there can be.
_FORGOTTEN: Final = 128


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

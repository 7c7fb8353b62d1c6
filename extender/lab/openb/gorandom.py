"""The random numbers of Go's `math/rand`, with which the published openb results were drawn.

With the same numbers the same pods arrive in the same order, so our curves can be compared with the
published ones seed by seed. Go's generator is an additive lagged Fibonacci one, s(n) = s(n-273) +
s(n-607) modulo 2^64 (Mitchell and Reeds). Its register starts as the exclusive or of a seeded
congruential sequence and of the register that such a generator has after 7.8e12 steps. Go's source
lists those 607 numbers; here they are computed once, by raising x to that power modulo the
recurrence's characteristic polynomial, which takes about 0.1 s.
"""

from collections.abc import MutableSequence
from functools import cache
from typing import Final, TypeVar

T = TypeVar("T")

_LENGTH: Final = 607
_TAP: Final = 273
_WARM_UP_STEPS: Final = 7_800_000_000_000
_WORD: Final = (1 << 64) - 1
#: Bits of one coefficient in a product of polynomials: two words and the count of terms.
_SLOT: Final = 2 * 64 + 16


class GoRandom:
    """Go's `rand.New(rand.NewSource(seed))`, with the same method names."""

    def __init__(self, seed: int) -> None:
        register = [a ^ b for a, b in zip(_congruential(seed, 20, 40), _warmed_up(), strict=True)]
        self._past = _by_age(register)
        self._at = 0

    def int63(self) -> int:
        """A number from 0 to 2^63 - 1."""
        # `_past` is a ring: the oldest value is at `_at`, the one of 273 steps ago is 334 further
        # on.
        at = self._at
        value = self._past[at] + self._past[(at + _LENGTH - _TAP) % _LENGTH] & _WORD
        self._past[at] = value
        self._at = (at + 1) % _LENGTH
        return value & (_WORD >> 1)

    def intn(self, n: int) -> int:
        """A number from 0 to n - 1, n below 2^31."""
        if n & (n - 1) == 0:
            return self.int63() >> 32 & (n - 1)
        most = (1 << 31) - 1 - (1 << 31) % n
        while (value := self.int63() >> 32) > most:
            pass
        return value % n

    def perm(self, n: int) -> list[int]:
        """A permutation of 0 to n - 1."""
        drawn = [0] * n
        for at in range(n):
            other = self.intn(at + 1)
            drawn[at] = drawn[other]
            drawn[other] = at
        return drawn

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle `items`; uses other numbers than `perm`."""
        for at in range(len(items) - 1, 0, -1):
            other = self._below(at + 1)
            items[at], items[other] = items[other], items[at]

    def _below(self, n: int) -> int:
        """A number from 0 to n - 1 by Lemire's multiplication."""
        product = (self.int63() >> 31) * n
        if product & 0xFFFFFFFF < n:
            least = (1 << 32) % n
            while product & 0xFFFFFFFF < least:
                product = (self.int63() >> 31) * n
        return product >> 32


def _congruential(seed: int, low_shift: int, high_shift: int) -> list[int]:
    """607 words of three numbers each from the minimal standard generator."""
    modulus = (1 << 31) - 1
    x = seed % modulus or 89482311
    for _ in range(20):
        x = 48271 * x % modulus
    words = []
    for _ in range(_LENGTH):
        first = 48271 * x % modulus
        second = 48271 * first % modulus
        x = 48271 * second % modulus
        words.append(first << high_shift ^ second << low_shift ^ x)
    return words


def _by_age(register: list[int]) -> list[int]:
    """The register's words, the oldest first: steps overwrite it downwards from 333."""
    return [register[(_LENGTH - _TAP - 1 - step) % _LENGTH] for step in range(_LENGTH)]


@cache
def _warmed_up() -> tuple[int, ...]:
    """The register of a generator seeded with 1 after 7.8e12 steps."""
    past = _by_age(_congruential(1, 10, 20))
    for at in range(_LENGTH):
        past.append(past[at] + past[at + _LENGTH - _TAP] & _WORD)
    power = _power_of_x(_WARM_UP_STEPS)
    late = [
        sum(factor * past[at + i] for i, factor in enumerate(power)) & _WORD
        for at in range(_LENGTH)
    ]
    # Step n overwrites word 333 - n, counted round, so `late` starts at the step after the last.
    register = [0] * _LENGTH
    for at, word in enumerate(late):
        register[(_LENGTH - _TAP - 1 - _WARM_UP_STEPS - at) % _LENGTH] = word
    return tuple(register)


def _power_of_x(exponent: int) -> list[int]:
    """x^exponent modulo x^607 - x^334 - 1, coefficients modulo 2^64, the lowest first."""
    power = [1] + [0] * (_LENGTH - 1)
    for bit in f"{exponent:b}":
        packed = sum(word << (_SLOT * at) for at, word in enumerate(power))
        square = packed * packed
        if bit == "1":
            square <<= _SLOT
        power = _reduce(square.to_bytes(_SLOT // 8 * 2 * _LENGTH, "little"))
    return power


def _reduce(packed: bytes) -> list[int]:
    """The remainder of a polynomial of degree below 1214, one coefficient in each 18 bytes."""
    width = _SLOT // 8
    words = [
        int.from_bytes(packed[at : at + width], "little") & _WORD
        for at in range(0, len(packed), width)
    ]
    for at in range(len(words) - 1, _LENGTH - 1, -1):
        words[at - _LENGTH] += words[at]
        words[at - _TAP] += words[at]
    return [word & _WORD for word in words[:_LENGTH]]

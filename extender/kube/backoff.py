"""Delays before retries, and limits on how often a process does something."""

import random
from typing import Final

BASE_S: Final = 0.1
CAP_S: Final = 30.0


class Backoff:
    """Delays that double up to a cap, each shortened by up to half at random.

    The randomness keeps clients from calling a recovered API server all at once.
    """

    def __init__(self, base_s: float = BASE_S, cap_s: float = CAP_S) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._n_failures = 0

    def next_s(self) -> float:
        """The delay before the next try, in seconds; counts one more failure."""
        # 2**30 is beyond any cap; the bound keeps the number small after days of failures.
        whole = min(self._cap_s, self._base_s * float(2 ** min(self._n_failures, 30)))
        self._n_failures += 1
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 (jitter, not a secret)

    def reset(self) -> None:
        """Start again from the shortest delay, after a success."""
        self._n_failures = 0


class RetryBudget:
    """Limits retries to a share of the successes, so that an overloaded API server gets no more.

    A retry takes one token, a success gives `per_success` back, up to `size`.
    """

    def __init__(self, size: float = 50.0, per_success: float = 0.1) -> None:
        self._size = size
        self._per_success = per_success
        self._tokens = size

    def take(self) -> bool:
        """Whether one more retry is allowed; takes a token if so."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def earn(self) -> None:
        """Count a request that succeeded."""
        self._tokens = min(self._size, self._tokens + self._per_success)


class TokenBucket:
    """A bucket of at most `at_once` tokens, refilled with `a_second` tokens per second."""

    def __init__(self, a_second: float, at_once: int, now: float) -> None:
        self._a_second = a_second
        self._at_once = at_once
        self._turns = float(at_once)
        self._as_of = now

    def take(self, now: float, turns: int = 1) -> float:
        """Take tokens at `now` and return 0, or return the seconds until there are enough."""
        filled = self._turns + (now - self._as_of) * self._a_second
        self._turns, self._as_of = min(filled, self._at_once), now
        if self._turns < turns:
            return (turns - self._turns) / self._a_second
        self._turns -= turns
        return 0.0

    def earn(self, turns: float) -> None:
        """Add tokens; those above `at_once` are lost."""
        self._turns = min(self._turns + turns, self._at_once)

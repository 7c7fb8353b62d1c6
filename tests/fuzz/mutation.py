"""Damages valid inputs slightly: the bytes, or the encoded tree.

All damage follows from a number that Hypothesis draws, so the printed number reproduces a failure.
"""

import copy
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.support.hostile import DECORATIONS, INVISIBLE, OTHER_FORMS

N_INPUTS: Final = int(os.environ.get("BALLAST_FUZZ", "400"))
#: Inputs per drawn number, since drawing costs more than damaging.
A_DRAW: Final = 50
#: Deadline of a test, for inputs that take 50 ms on a busy machine.
TIMEOUT_S: Final = max(180, N_INPUTS // 20)
#: Longest piece that is removed, duplicated or inserted.
PIECE: Final = 12

Check = Callable[[bytes], None]

#: Values that replace values of a tree.
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308,
    "", " ", "a", "0", "-1", "1e3", "NaN", "0.5", "500m", "8Gi", "1 n1", "n1 1 1", "a=1,b=2", ",",
    "2026-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "..", "a/b", "\x00", "\ud7ff", "x" * 300,
    [], {}, [[]], [{}], {"": None}, [None], ["a", "a"], [0] * 70, {"name": {}}, {"name": None},
)  # fmt: skip
TEXTS: Final = tuple(text for text in (*OTHER_FORMS, *INVISIBLE) if len(text) < 400)
BYTES: Final = (
    b"", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"null", b"{}", b"[]", b'"', b",",
    b":", b"\\u0000", b"\\ud800", b"1e999", b"-0", b"[" * 2000, b'{"a":' * 2000, b"9" * 5000, b"\n",
    b"&a [*a]", b"<<: *a", b"!!python/object:x {}", b"? ", b"- ", b"---\n", b"%YAML 1.1\n", b"#",
)  # fmt: skip
#: Shorter pieces for PyYAML's Python parser, since the parser's time is quadratic in the depth of
#: brackets; still too deep for the parser.
SHORT_BYTES: Final = tuple(each[:400] for each in BYTES)


def fuzz(
    seeds: Sequence[bytes], *, of_trees: bool = True, pieces: Sequence[bytes] = BYTES
) -> Callable[[Check], Callable[[], None]]:
    """Makes a test that calls the check with `N_INPUTS` damaged seeds.

    `of_trees`: the seeds are JSON, and are also damaged as trees; `pieces` are inserted.
    """

    def decorate(check: Check) -> Callable[[], None]:
        @settings(
            max_examples=max(1, math.ceil(N_INPUTS / A_DRAW)),
            deadline=None,
            # Shrinking is useless: a smaller number is no simpler input.
            phases=(Phase.explicit, Phase.generate),
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(drawn=st.integers(0, 2**64 - 1))
        def test(drawn: int) -> None:
            damage = Damage(Random(drawn), pieces, of_trees)
            for _ in range(A_DRAW):
                made = damage.done_to(damage.random.choice(seeds))
                try:
                    check(made)
                except BaseException:
                    note(f"input: {made[:2000]!r}")
                    raise

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        timed: Callable[[], None] = pytest.mark.timeout(TIMEOUT_S)(test)
        return timed

    return decorate


def told(is_told: bool) -> None:
    """Fail if the message of a refusal lacks what it must say."""
    assert is_told


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of one drawn number."""

    random: Random
    pieces: Sequence[bytes]
    of_trees: bool

    def done_to(self, seed: bytes) -> bytes:
        """The seed with one to four kinds of damage, sometimes unchanged."""
        made = seed
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            is_tree = self.of_trees and self.random.random() < 0.7
            made = self._damage_tree(made) if is_tree else self._cut(made)
        return made

    def _damage_tree(self, body: bytes) -> bytes:
        random = self.random
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            return self._cut(body)
        places = _places(tree)
        if not places:
            return json.dumps(random.choice(VALUES)).encode()
        parent, key = random.choice(places)
        way = random.randrange(7)
        if way == 0:
            del parent[key]
        elif way == 1 and isinstance(parent, dict):
            parent[key + random.choice(("", "x", " "))] = parent.pop(key)
        elif way == 2:
            other, at = random.choice(places)
            parent[key] = copy.deepcopy(other[at])
        elif way == 3 and isinstance(parent[key], str):
            parent[key] = self._garbled(parent[key])
        elif way == 4 and isinstance(parent, list):
            parent.extend(copy.deepcopy(parent[key]) for _ in range(random.randrange(70)))
        elif way == 5:
            parent[key] = random.choice(TEXTS)
        else:
            parent[key] = random.choice(VALUES)
        return json.dumps(tree).encode()

    def _garbled(self, text: str) -> str:
        """The text in a decoration, or with an invisible character in it."""
        if self.random.random() < 0.5:
            return self.random.choice(DECORATIONS).format(text)
        at = self.random.randrange(len(text) + 1)
        return text[:at] + self.random.choice(INVISIBLE) + text[at:]

    def _cut(self, body: bytes) -> bytes:
        random = self.random
        at = random.randrange(len(body) + 1)
        end = min(len(body), at + random.randrange(1, PIECE))
        if random.randrange(7) == 0 and at < len(body):
            flipped = bytearray(body)
            flipped[at] ^= 1 << random.randrange(8)
            return bytes(flipped)
        # The text between the parts that are kept, and the start of the second part.
        between, onward = random.choice(
            (
                (b"", end),
                (body[at:end], at),
                (b"", len(body)),
                (random.choice(self.pieces), at),
                (random.choice(self.pieces), end),
                (random.randbytes(end - at), end),
            )
        )
        return body[:at] + between + body[onward:]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """All (parent, key) pairs of a tree."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree] if isinstance(tree, dict | list) else []
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            found.append((each, key))
            if isinstance(each[key], dict | list):
                waiting.append(each[key])
        if len(found) > 2000:
            break
    return found

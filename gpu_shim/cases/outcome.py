"""The outcome of a case, and its comparison with the expected result."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from msgspec import Struct, field

from gpu_shim.cases.model import SECOND, CardCase

#: The resolution of the clock.
TICK_S: Final = Fraction(1, SECOND)


class Held(Struct):
    """Seconds that one workload was due and held, and its leases in each full plan."""

    due_s: Fraction = Fraction(0)
    held_s: Fraction = Fraction(0)
    leases: list[Fraction] = field(default_factory=list)


class CaseOutcome(Struct):
    """The result of one run of a case.

    `tolerance_s` is the allowed difference of held time from the expected; with a real clock,
    `room` is the part of the total time by which any figure may differ.
    """

    seconds: Fraction
    held: dict[str, Held]
    refused: dict[str, str] = field(default_factory=dict)
    tolerance_s: Fraction = Fraction(0)
    room: Fraction = Fraction(0)


def differences(case: CardCase, outcome: CaseOutcome) -> list[str]:
    """One sentence for each difference from the expected result."""
    found = case.claims()[1]
    if case.plan is not None and case.plan != case.lease / case.precision:
        found.append(f"plan is {case.lease / case.precision} s, expected {case.plan}")
    if sorted(outcome.refused) != sorted(case.refused()):
        said = ", ".join(f"{name} ({why})" for name, why in outcome.refused.items()) or "none"
        found.append(f"refused is {said}, expected {', '.join(case.refused()) or 'none'}")
    found += _in_time(case, outcome)
    found += _in_leases(case, outcome)
    return found


def _in_time(case: CardCase, outcome: CaseOutcome) -> Iterator[str]:
    """Shares and seconds: due time must be exact, held time within the tolerance."""
    expected = {name: share * outcome.seconds for name, share in case.expect.share.items()}
    for name, seconds in (*expected.items(), *case.expect.seconds.items()):
        held = outcome.held.get(name, Held())
        room = max(TICK_S, (case.expect.slack + outcome.room) * outcome.seconds)
        if abs(held.due_s - seconds) > room:
            yield f"{name}: due {_shown(held.due_s)} s of {outcome.seconds}, expected {seconds}"
        off = abs(held.held_s - seconds)
        if off > room and (off >= outcome.tolerance_s):
            yield f"{name}: held {_shown(held.held_s)} s of {outcome.seconds}, expected {seconds}"


def _in_leases(case: CardCase, outcome: CaseOutcome) -> Iterator[str]:
    """Leases in each plan; the slack is a part of the plan, so it is a number of leases too.

    One plan may be off by two and a half times as much as a long run.
    """
    room = (case.expect.slack + 5 * outcome.room / 2) / case.precision
    for name, (least, most) in case.expect.leases.items():
        counts = outcome.held.get(name, Held()).leases
        wrong = [count for count in counts if not least - room <= count <= most + room]
        if wrong:
            yield f"{name}: {_few(wrong)} leases in a plan, expected {least} to {most}"
        if not counts and name not in outcome.refused:
            yield f"{name}: no full plan was run"


def _shown(seconds: Fraction) -> str:
    """The exact number if it is short, else a decimal."""
    return str(seconds) if seconds.denominator < 10**6 else f"{float(seconds):.4f}"


def _few(counts: Sequence[Fraction]) -> str:
    return ", ".join(map(_shown, sorted(set(counts))[:4]))

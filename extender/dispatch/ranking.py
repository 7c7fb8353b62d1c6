"""The rule by which clusters are compared, and its words. Pure.

A cluster where the workload starts now comes before one where it waits. Among the first, one where
it stops and moves no pod comes before others, then one where it is within quota, then one where
fewer pods stop or move. Among the others, the one where the start can be known and is soonest. Of
equals, the one that MultiKueueConfig lists first. A cluster where it can never run, and one that
gave no answer, are not nominated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.view.answers import Prospect

#: Of one cluster's answer; Kubernetes keeps 32 KiB of a condition's message, and 20 clusters fit.
_MOST_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Heard:
    """What one cluster answered; `silence` is why it did not, where `prospect` is None."""

    cluster: str
    prospect: Prospect | None = None
    silence: str = ""

    @property
    def can_run(self) -> bool:
        """Whether the workload may be sent there."""
        return self.prospect is not None and self.prospect.state != "never"

    def __str__(self) -> str:
        text = self._sentence()
        return f"{self.cluster}: {text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '...'}"

    def _sentence(self) -> str:
        found = self.prospect
        if found is None:
            return f"gave no answer: {self.silence}"
        if found.state == "starts":
            where = "within quota" if found.is_within_quota else "above quota"
            return f"starts now, {where}, {_price(found) or 'stops nothing'}"
        why = ": ".join(filter(None, (found.reason, found.message)))
        if found.state == "waits":
            when = f", not before {found.earliest}" if found.earliest else ""
            return f"waits{when} ({why})"
        return f"can't run ({why})" if found.state == "never" else why


def ranked(heard: Iterable[Heard]) -> list[Heard]:
    """The clusters where the workload may be sent, best first; `heard` is in the order of the
    MultiKueueConfig."""
    return sorted((each for each in heard if each.can_run), key=_rank)


def choose(heard: Sequence[Heard], tried: Iterable[str] = ()) -> list[str]:
    """The clusters to nominate: the best one, or none.

    Those of `tried` have let a nomination lapse: they are passed over while there is another. Work
    without GPUs is not Ballast's to place, so every cluster that gave an answer is nominated, as
    MultiKueue does by itself.
    """
    able = ranked(heard)
    if able and all(each.prospect and each.prospect.state == "not ours" for each in able):
        return [each.cluster for each in able]
    passed = set(tried)
    fresh = [each for each in able if each.cluster not in passed]
    return [each.cluster for each in (fresh or able)[:1]]


def _price(found: Prospect) -> str:
    """How many pods leave for it; empty where none does."""
    counted = (("stops", found.stops), ("moves", found.moves))
    return " and ".join(f"{verb} {n} pod{'' if n == 1 else 's'}" for verb, n in counted if n)


def _rank(heard: Heard) -> tuple[bool, bool, bool, int, bool, str]:
    found = heard.prospect
    assert found is not None
    n_left = found.stops + found.moves
    return (
        found.state != "starts",
        n_left > 0,
        not found.is_within_quota,
        n_left,
        not found.earliest,
        found.earliest,
    )

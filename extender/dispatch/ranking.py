"""Compares the clusters' answers, and describes them. Pure.

A cluster where the workload starts now comes before one where it stays pending. Among the former,
one without evictions and moves comes first, then one within quota, then one with fewer evictions
and moves. Among the latter, one with a known, early start comes first. Ties go to the one that
MultiKueueConfig lists first. A cluster where the workload can never run, or that did not answer, is
not nominated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.view.answers import Prospect

#: Maximum length of one cluster's answer: 20 clusters fit into the 32 KiB of a condition's message.
_MOST_SHOWN = 400


@dataclass(frozen=True, slots=True)
class Heard:
    """One cluster's answer; `silence` is why there is none, if `prospect` is None."""

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
            return f"starts now, {where}, {_cost(found) or 'stops nothing'}"
        why = ": ".join(filter(None, (found.reason, found.message)))
        if found.state == "waits":
            when = f", not before {found.earliest}" if found.earliest else ""
            return f"waits{when} ({why})"
        return f"can't run ({why})" if found.state == "never" else why


def ranked(heard: Iterable[Heard]) -> list[Heard]:
    """The clusters where the workload may be sent, best first; `heard` is in configured order."""
    return sorted((each for each in heard if each.can_run), key=_rank)


def choose(heard: Sequence[Heard], tried: Iterable[str] = ()) -> list[str]:
    """The clusters to nominate: the best one, or none.

    Clusters in `tried` let a nomination lapse: they are skipped while there is another. A workload
    without GPUs is not placed by Ballast, so every cluster that answered is nominated, as
    MultiKueue does by itself.
    """
    able = ranked(heard)
    if able and all(each.prospect and each.prospect.state == "not ours" for each in able):
        return [each.cluster for each in able]
    passed = set(tried)
    fresh = [each for each in able if each.cluster not in passed]
    return [each.cluster for each in (fresh or able)[:1]]


def _cost(found: Prospect) -> str:
    """How many pods are evicted and moved for it; empty if none."""
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

"""The counts of a run, and whether they suffice for a verdict."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.auditor import Verdict


@dataclass(slots=True)
class Tally:
    """Counts over all audits of a run; a line for each missed deadline or violation."""

    #: The kinds of fault that the run must inject.
    wanted: tuple[str, ...]
    done: Counter[str] = field(default_factory=Counter)
    #: Events that faults count besides themselves, and crashes by point.
    counted: Counter[str] = field(default_factory=Counter)
    crashes: Counter[str] = field(default_factory=Counter)
    revisions: int = 0
    binds: int = 0
    evictions: int = 0
    violations: list[str] = field(default_factory=list)
    #: Failures of the audit itself.
    holes: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    #: Check points at which all pods that can run were judged.
    n_checked: int = 0

    def add(self, verdict: Verdict) -> None:
        """Add the counts of one audit."""
        self.revisions += verdict.counts.revisions
        self.binds += verdict.counts.binds
        self.evictions += verdict.counts.evictions
        self.violations += [str(each) for each in verdict.violations]
        self.holes += verdict.faults

    def why_nothing_is_proven(self) -> list[str]:
        """What is missing for a verdict, a line each; empty if nothing is."""
        lacking = [f"no fault of kind {kind!r}" for kind in self.wanted if not self.done[kind]]
        counts = {
            "revision": self.revisions,
            "Binding": self.binds,
            "eviction": self.evictions,
            "check point": self.n_checked,
        }
        lacking += [f"no {what} was judged" for what, count in counts.items() if not count]
        return lacking + [f"the audit has a hole: {each}" for each in self.holes]

    @property
    def is_passed(self) -> bool:
        """Whether nothing was violated or missed, and nothing is missing for a verdict."""
        return not (self.violations or self.misses or self.why_nothing_is_proven())

    def lines(self) -> Iterable[str]:
        """The closing lines of a run."""
        yield from (f"VIOLATION {each}" for each in self.violations)
        yield from (f"MISS {each}" for each in self.misses)
        yield from (f"NOT PROVEN {each}" for each in self.why_nothing_is_proven())
        yield (
            f"audited: {self.revisions} revisions, {self.binds} Bindings, {self.evictions}"
            f" evictions; check points: {self.n_checked}"
        )
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.done.items()))
        yield f"faults: {self.done.total()}: {kinds}"
        more = [f"{name} {count}" for name, count in sorted(self.counted.items())]
        more += [f"crashes {self.crashes.total()} at {len(self.crashes)} points"]
        yield f"in these faults: {', '.join(more)}"
        yield (
            f"safety violations: {len(self.violations)}, liveness misses: {len(self.misses)}:"
            f" {'passed' if self.is_passed else 'FAILED'}"
        )

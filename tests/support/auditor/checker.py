"""The judge: changes in, violations out. It has no I/O and no clock.

`observe` applies one change and judges it, `tick` finds states that have lasted too long, and
`settle` compares figures at rest. The same history with the same times gives the same violations.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from tests.support.auditor.history import Change
from tests.support.auditor.rules import Finding, Limits, all_rules
from tests.support.auditor.rules.binding import Binding
from tests.support.auditor.rules.evictions import Evictions
from tests.support.auditor.rules.queues import Queues
from tests.support.auditor.sight import LedgerSeen, PodSeen, QueueSeen
from tests.support.auditor.world import Step, World


class Violation(Struct, frozen=True):
    """A violated invariant: where, and at which revision (for timed ones, the last one seen)."""

    invariant: str
    revision: int
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant} at revision {self.revision}: {self.subject}: {self.detail}"


class Counts(Struct):
    """Numbers of observed events, without the initial state."""

    revisions: int = 0
    pods: int = 0
    binds: int = 0
    evictions: int = 0
    rows: int = 0
    gangs: int = 0


class Checker:
    """Judges one history, change by change, in order of revision."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.world = World()
        self.limits = limits or Limits()
        self.counts = Counts()
        self.revision = 0
        #: Observer's clock at the last change of rows, pods or published figures.
        self.changed_s = float("-inf")
        #: Called with every step after the initial state, once it is applied.
        self.listeners: list[Callable[[Step], None]] = []
        self._rules = all_rules(self.limits)
        self._has_baseline = False

    def observe(self, change: Change) -> list[Violation]:
        """Apply one change; returns the violations that it causes."""
        if change.revision < self.revision and not change.is_initial:
            raise ValueError(f"revision {change.revision} after {self.revision}: not a history")
        found = [] if change.is_initial else self._judge_baseline()
        step = self.world.apply(change)
        self.revision = max(self.revision, change.revision)
        if _moves_figures(step):
            self.changed_s = change.seen_s
        if change.is_initial:
            return found
        self._count(step)
        for rule in self._rules:
            found += self._told(rule.on_step(self.world, step))
        self._read_counts()
        for listener in self.listeners:
            listener(step)
        return found

    def tick(self, now_s: float) -> list[Violation]:
        """States that have been wrong for too long at this time of the observer's clock."""
        found = self._judge_baseline()
        for rule in self._rules:
            found += self._told(rule.on_tick(self.world, now_s))
        return found

    def settle(self, now_s: float) -> list[Violation]:
        """Figures that do not agree although the cluster is at rest."""
        found = self.tick(now_s)
        for rule in self._rules:
            found += self._told(rule.at_rest(self.world))
        return found

    def has_true_reports(self) -> bool:
        """Whether Q2 and Q4 hold now; at rest, reports may still be due."""
        reports = [rule for rule in self._rules if isinstance(rule, Queues)]
        return not any(True for rule in reports for _ in rule.at_rest(self.world))

    def is_settled(self, now_s: float) -> bool:
        """Whether reports are true and nothing has changed for `Limits.rest_s`, or for
        `Limits.settled_s` if every eviction is explained: waiting longer would show no more."""
        is_explained = not any(r.n_open for r in self._rules if isinstance(r, Evictions))
        enough_s = self.limits.settled_s if is_explained else self.limits.rest_s
        return now_s - self.changed_s >= enough_s and self.has_true_reports()

    def is_at_rest(self, now_s: float) -> bool:
        """Whether rows, pods and reported figures have not changed for `Limits.rest_s`."""
        return now_s - self.changed_s >= self.limits.rest_s

    def _judge_baseline(self) -> list[Violation]:
        if self._has_baseline:
            return []
        self._has_baseline = True
        found: list[Violation] = []
        for rule in self._rules:
            found += self._told(rule.on_baseline(self.world))
        return found

    def _told(self, findings: Iterable[Finding]) -> Iterator[Violation]:
        for each in findings:
            yield Violation(each.invariant, self.revision, each.subject, each.detail)

    def _count(self, step: Step) -> None:
        self.counts.revisions += 1
        if step.before is None and isinstance(step.after, PodSeen):
            self.counts.pods += step.after.asked is not None
        if isinstance(step.after, LedgerSeen):
            before = step.before.rows if isinstance(step.before, LedgerSeen) else ()
            known = {row.uid for row in before}
            self.counts.rows += sum(row.uid not in known for row in step.after.rows)
        if step.change.kind == "GpuPodGroup" and step.before is None:
            self.counts.gangs += 1

    def _read_counts(self) -> None:
        for rule in self._rules:
            if isinstance(rule, Binding):
                self.counts.binds = rule.n_binds
            elif isinstance(rule, Evictions):
                self.counts.evictions = rule.n_evictions


def _moves_figures(step: Step) -> bool:
    """Whether this step may change what rows hold or what queues report."""
    before, after = step.before, step.after
    if step.change.kind == "GpuNode":
        return _rows(before) != _rows(after)
    if step.change.kind in ("GpuProject", "GpuDepartment"):
        return _report(before) != _report(after)
    if isinstance(before, PodSeen) and isinstance(after, PodSeen):
        return (before.node, before.has_ended) != (after.node, after.has_ended)
    return step.change.kind == "Pod"


def _rows(seen: object) -> object:
    return seen.rows if isinstance(seen, LedgerSeen) else ()


def _report(seen: object) -> object:
    return (seen.allocated, seen.fair_share, seen.quota) if isinstance(seen, QueueSeen) else ()

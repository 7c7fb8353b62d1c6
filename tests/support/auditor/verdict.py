"""The result of an audit, for messages and exit codes."""

from msgspec import Struct, field

from tests.support.auditor.checker import Counts, Violation

#: The most violations that are shown; further ones are counted.
SHOWN = 20


class Verdict(Struct):
    """The result; `faults` are failures of the audit itself (lost history, unreadable objects)."""

    counts: Counts
    violations: list[Violation]
    faults: list[str] = field(default_factory=list)
    #: Whether the figures came to rest, so that Q2 and Q4 were judged.
    was_at_rest: bool = False
    needs_binds: bool = True

    @property
    def is_clean(self) -> bool:
        """Whether nothing was violated or missed and, if needed, at least one bind was judged."""
        return not self.violations and not self.faults and not self.saw_too_little

    @property
    def saw_too_little(self) -> bool:
        """Whether a bind is needed and none was seen, so that the audit proves nothing."""
        return self.needs_binds and self.counts.binds == 0

    def invariants(self) -> set[str]:
        """Names of the invariants that were violated."""
        return {each.invariant for each in self.violations}

    def __str__(self) -> str:
        seen = self.counts
        lines = [
            f"audit: {'clean' if self.is_clean else 'NOT CLEAN'}: {len(self.violations)} violations"
            f" in {seen.revisions} revisions, {seen.pods} GPU pods, {seen.rows} rows,"
            f" {seen.gangs} gangs, {seen.binds} binds, {seen.evictions} evictions"
            f"{'' if self.was_at_rest else '; never at rest, reports not judged'}"
        ]
        if self.saw_too_little:
            lines.append("  no bind was seen: nothing was proven")
        lines += [f"  fault: {each}" for each in self.faults]
        lines += [f"  {each}" for each in self.violations[:SHOWN]]
        if len(self.violations) > SHOWN:
            lines.append(f"  and {len(self.violations) - SHOWN} more")
        return "\n".join(lines)

"""The invariants, one module per subject. A rule sees every step and returns findings.

Rules do not look ahead or query the API; times are by the observer's clock.
"""

from tests.support.auditor.rules.binding import Binding
from tests.support.auditor.rules.cards import Cards
from tests.support.auditor.rules.evictions import Evictions
from tests.support.auditor.rules.gangs import Gangs
from tests.support.auditor.rules.queues import Queues
from tests.support.auditor.rules.rows import Rows
from tests.support.auditor.rules.rule import Finding, Limits, Rule


def all_rules(limits: Limits) -> list[Rule]:
    """A new instance of every rule."""
    return [
        Cards(limits),
        Rows(limits),
        Binding(limits),
        Gangs(limits),
        Queues(limits),
        Evictions(limits),
    ]


__all__ = ["Finding", "Limits", "Rule", "all_rules"]

"""The base of all rules: a rule judges steps, elapsed time, and the state at rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.support.auditor.world import Step, World


@dataclass(slots=True, frozen=True)
class Finding:
    """A violation; `invariant` is the name in the list of invariants."""

    invariant: str
    subject: str
    detail: str


@dataclass(slots=True, frozen=True)
class Limits:
    """How long a wrong state may last, in seconds of the observer's clock.

    `lag_s` is how stale a watch cache may be: a quota, a cordon or an unhealthy card counts only
    once it has been visible for that long. `kept_row_s` is for rows that keep the place of a moved
    pod's successor and so outlive their pod. `settled_s` suffices instead of `rest_s` if all that
    is judged at rest is true by then.
    """

    lag_s: float = 5.0
    orphan_row_s: float = 60.0
    kept_row_s: float = 120.0
    gang_bind_s: float = 30.0
    gang_stale_s: float = 60.0
    rest_s: float = 3.0
    settled_s: float = 1.0


class Rule:
    """A rule without findings; rules override what they need. No method changes the world."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._standing: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        """Violations that this step causes; `world` is the state after the step."""
        return iter(())

    def on_tick(self, world: World, now_s: float) -> Iterator[Finding]:
        """States that have been wrong for too long."""
        return iter(())

    def on_baseline(self, world: World) -> Iterator[Finding]:
        """Violations in the initial state."""
        return iter(())

    def at_rest(self, world: World) -> Iterator[Finding]:
        """Violations at rest."""
        return iter(())

    def fresh(self, scope: str, found: Iterable[Finding]) -> list[Finding]:
        """The findings in `scope` that the previous call for it did not have.

        So a state that stays wrong over many revisions is reported once.
        """
        current = list(found)
        known = self._standing[scope]
        new = [each for each in current if (each.invariant, each.subject) not in known]
        if current:
            self._standing[scope] = {(each.invariant, each.subject) for each in current}
        else:
            self._standing.pop(scope, None)
        return new

"""What every rule is: a judge of steps, of elapsed time, and of the state at rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.support.auditor.world import Step, World


@dataclass(slots=True, frozen=True)
class Finding:
    """Something that must not be. `invariant` is its name in the list of invariants."""

    invariant: str
    subject: str
    detail: str


@dataclass(slots=True, frozen=True)
class Limits:
    """How long what is wrong may last, in seconds of the observer's clock.

    `lag_s` is how stale a watch cache may be: a quota, a cordon or a sick card counts against a
    writer only once it has been visible for that long. `kept_row_s` is for rows that keep the place
    of a moved pod's successor: they outlive their pod on purpose. `settled_s` is enough instead of
    `rest_s` where all that is judged at rest is true by then.
    """

    lag_s: float = 5.0
    orphan_row_s: float = 60.0
    kept_row_s: float = 120.0
    gang_bind_s: float = 30.0
    gang_stale_s: float = 60.0
    rest_s: float = 3.0
    settled_s: float = 1.0


class Rule:
    """Judges nothing; rules override what they need. All methods leave the world as it is."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._standing: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        """What this step made wrong; `world` is as it is after the step."""
        return iter(())

    def on_tick(self, world: World, now_s: float) -> Iterator[Finding]:
        """What has been wrong for too long by now."""
        return iter(())

    def on_baseline(self, world: World) -> Iterator[Finding]:
        """What is wrong in the state in which the observer found the cluster."""
        return iter(())

    def at_rest(self, world: World) -> Iterator[Finding]:
        """What must agree once nothing has changed for a while."""
        return iter(())

    def fresh(self, scope: str, found: Iterable[Finding]) -> list[Finding]:
        """Of all that is wrong in `scope` now, what was not yet wrong when last asked.

        So a state that stays wrong over a thousand revisions is told once.
        """
        current = list(found)
        known = self._standing[scope]
        new = [each for each in current if (each.invariant, each.subject) not in known]
        if current:
            self._standing[scope] = {(each.invariant, each.subject) for each in current}
        else:
            self._standing.pop(scope, None)
        return new

"""B1, B2, B3: how a pod gets its node.

B1: a pod is bound only without gates, to a schedulable node and healthy cards, both when the row is
written and when the pod is bound (a state counts once it was visible for `lag_s`).

B2: a pod is bound once; its node never changes.

B3: node and cards are set in one write. So no unbound pod has the cards annotation, no GPU pod is
created with a node, and a bound pod has exactly the cards of its row.
"""

from collections.abc import Iterator

from tests.support.auditor.rules.rule import Finding, Limits, Rule
from tests.support.auditor.sight import LedgerSeen, PodSeen, RowSeen
from tests.support.auditor.world import Step, World


class Binding(Rule):
    """Judges the step that binds a pod, and the cards annotation at every step."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._bound: set[str] = set()
        self.n_binds = 0

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        if isinstance(step.after, PodSeen):
            before = step.before if isinstance(step.before, PodSeen) else None
            if before is not None and before.uid != step.after.uid:
                before = None
            yield from self._node_findings(world, step, before, step.after)
            yield from self.fresh(step.after.uid, _card_findings(world, step.after))
        elif isinstance(step.after, LedgerSeen):
            before_rows = step.before.rows if isinstance(step.before, LedgerSeen) else ()
            known = {row.uid for row in before_rows if row.state != "nominated"}
            for row in step.after.rows:
                if row.uid not in known and world.holds(row):
                    yield from self._sick_findings(world, step, step.after.name, row)

    def on_baseline(self, world: World) -> Iterator[Finding]:
        for pod in world.pods.values():
            if pod.node:
                self._bound.add(pod.uid)
            yield from self.fresh(pod.uid, _card_findings(world, pod))

    def _node_findings(
        self, world: World, step: Step, before: PodSeen | None, after: PodSeen
    ) -> Iterator[Finding]:
        had = before.node if before is not None else ""
        if had == after.node or after.asked is None:
            return
        subject = f"Pod {after.key}"
        if had:
            yield Finding("B2", subject, f"was on {had}, is now on {after.node or 'no node'}")
            return
        self.n_binds += 1
        if after.uid in self._bound:
            yield Finding("B2", subject, f"bound a second time, to {after.node}")
        self._bound.add(after.uid)
        if before is None:
            yield Finding("B3", subject, f"created with node {after.node}, not bound by us")
        if after.gates:
            yield Finding("B1", subject, f"bound while held by {', '.join(after.gates)}")
        cordoned_s = world.cordoned_since.get(after.node)
        if cordoned_s is not None and step.change.seen_s - cordoned_s > self.limits.lag_s:
            yield Finding("B1", subject, f"bound to {after.node}, which is cordoned")
        for node, row in world.rows_of(after.uid):
            yield from self._sick_findings(world, step, node, row)

    def _sick_findings(
        self, world: World, step: Step, node: str, row: RowSeen
    ) -> Iterator[Finding]:
        for card in row.cards:
            since_s = world.sick_since.get((node, card.index))
            if since_s is not None and step.change.seen_s - since_s > self.limits.lag_s:
                yield Finding(
                    "B1", f"Pod {row.key}", f"given {node}/gpu{card.index}, which is unhealthy"
                )


def _card_findings(world: World, pod: PodSeen) -> Iterator[Finding]:
    if pod.has_ended:
        return
    subject = f"Pod {pod.key}"
    if not pod.node:
        if pod.has_cards:
            yield Finding("B3", subject, "carries cards but has no node: annotated before bound")
        return
    if pod.asked is None:
        return
    rows = [row for node, row in world.rows_of(pod.uid) if node == pod.node]
    if not rows:
        yield Finding("B3", subject, f"on {pod.node} without a row there")
    elif pod.cards is None:
        said = "an unreadable cards annotation" if pod.has_cards else "no cards annotation"
        yield Finding("B3", subject, f"on {pod.node} with {said}")
    elif pod.cards != rows[0].cards:
        yield Finding("B3", subject, f"says it has {pod.cards}, its row says {rows[0].cards}")

"""A3, A4 and the fence R1: every bound pod has its row, every row has its pod.

A3: a live bound GPU pod has exactly one row, on its node, not `nominated`, and equal to its
request. A pod that is moved also has a `nominated` row on another node, which keeps the place for
its successor and names the owner that creates it. Two leaders may each write such a row, on two
nodes; the second is freed within `orphan_row_s`.

A4: a row is freed within `orphan_row_s` after its pod ended or was deleted, a row for a successor
within `kept_row_s`.

R1, of Ballast's protocol: a pod is released (our gate removed, with a plan) only when the row of
that plan is in the ledger. That row is not freed while the pod has the plan, is live and not bound,
since a Binding for it may be in flight.
"""

from collections.abc import Iterator

from extender.api import names
from tests.support.auditor.rules.rule import Finding, Limits, Rule
from tests.support.auditor.sight import UNREADABLE, LedgerSeen, PodSeen, RowSeen
from tests.support.auditor.world import HOLDING, Step, World


class Rows(Rule):
    """Compares pods and rows whenever one of them changes."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        #: (node, UID) of a row without a live pod -> observer's clock when that began.
        self._orphan_since: dict[tuple[str, str], float] = {}
        self._told: set[tuple[str, str]] = set()
        #: UID of a pod with more than one kept place -> observer's clock when that began.
        self._doubled_since: dict[str, float] = {}

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        if isinstance(step.after, PodSeen):
            yield from self._judge(world, step.after)
            if isinstance(step.before, PodSeen):
                yield from _release_findings(world, step.before, step.after)
        elif step.change.kind == "GpuNode":
            before = step.before.rows if isinstance(step.before, LedgerSeen) else ()
            after = step.after.rows if isinstance(step.after, LedgerSeen) else ()
            changed = set(before).symmetric_difference(after)
            for uid in {row.uid for row in changed}:
                pod = world.pods_by_uid.get(uid)
                if pod is not None:
                    yield from self._judge(world, pod)
            kept = {row.uid for row in after if row.state in HOLDING}
            for row in before:
                if row.uid not in kept and row.state == "reserved":
                    yield from _fence_findings(world, step.change.name, row)

    def on_tick(self, world: World, now_s: float) -> Iterator[Finding]:
        yield from self._doubled(world, now_s)
        orphans = {
            (ledger.name, row.uid): row
            for ledger in world.ledgers.values()
            for row in ledger.rows
            if not world.is_live(row.uid)
        }
        self._orphan_since = {key: self._orphan_since.get(key, now_s) for key in orphans}
        self._told &= set(orphans)
        for key, since_s in self._orphan_since.items():
            allowed_s = (
                self.limits.kept_row_s if orphans[key].keeps_for else self.limits.orphan_row_s
            )
            if now_s - since_s > allowed_s and key not in self._told:
                self._told.add(key)
                yield Finding(
                    "A4",
                    f"GpuNode {key[0]}",
                    f"the row of {orphans[key].key} outlived its pod by {now_s - since_s:.0f} s",
                )

    def _doubled(self, world: World, now_s: float) -> Iterator[Finding]:
        """Pods with more than one row for their successor for too long."""
        kept: dict[str, list[tuple[str, RowSeen]]] = {}
        for ledger in world.ledgers.values():
            for row in ledger.rows:
                if row.keeps_for:
                    kept.setdefault(row.uid, []).append((ledger.name, row))
        doubled = {uid: rows for uid, rows in kept.items() if len(rows) > 1}
        self._doubled_since = {uid: self._doubled_since.get(uid, now_s) for uid in doubled}
        for uid, since_s in self._doubled_since.items():
            if now_s - since_s > self.limits.orphan_row_s:
                where = ", ".join(node for node, _ in doubled[uid])
                subject = f"Pod {doubled[uid][0][1].key}"
                finding = Finding("A3", subject, f"its successor's place is kept on {where}")
                yield from self.fresh(f"doubled {uid}", [finding])

    def on_baseline(self, world: World) -> Iterator[Finding]:
        for pod in world.pods.values():
            yield from self._judge(world, pod)

    def _judge(self, world: World, pod: PodSeen) -> list[Finding]:
        return self.fresh(pod.uid, _row_findings(world, pod))


def _row_findings(world: World, pod: PodSeen) -> Iterator[Finding]:
    if not pod.node or pod.asked is None or pod.has_ended:
        return
    subject, rows = f"Pod {pod.key}", world.rows_of(pod.uid)
    kept = [(node, row) for node, row in rows if row.keeps_for]
    if any(node == pod.node or row.state in HOLDING for node, row in kept):
        where = ", ".join(f"{node} ({row.state})" for node, row in kept)
        yield Finding("A3", subject, f"on {pod.node}, its successor's place is kept by {where}")
        return
    if any(row.keeps_for != pod.owner for _, row in kept):
        yield Finding("A3", subject, "its successor's place is kept for another owner's pods")
    rows = [(node, row) for node, row in rows if not row.keeps_for]
    if len(rows) != 1:
        where = ", ".join(node for node, _ in rows)
        yield Finding("A3", subject, f"bound to {pod.node} with {len(rows)} rows {where}".rstrip())
        return
    node, row = rows[0]
    if node != pod.node:
        yield Finding("A3", subject, f"bound to {pod.node}, its row is on {node}")
    elif row.state not in HOLDING:
        yield Finding("A3", subject, f"bound while its row on {node} is {row.state}")
    elif not _is_as_asked(world.ledgers[node], pod, row):
        held = ", ".join(f"gpu{c.index}:{c.milli}:{c.mib}" for c in row.cards)
        yield Finding("A3", subject, f"asked for {pod.asked}, its row holds {held}")


def _is_as_asked(ledger: LedgerSeen, pod: PodSeen, row: RowSeen) -> bool:
    asked = pod.asked
    if asked is None or asked == UNREADABLE:
        return False
    n_cards = len({card.index for card in row.cards})
    if not n_cards == asked.devices == len(row.cards):
        return False
    for card in row.cards:
        if asked.milli and card.milli != asked.milli:
            return False
        if asked.mib:
            size = ledger.devices[card.index].memory_mib if card.index in ledger.devices else 0
            least = -(-asked.mib * 1000 // size) if size else 1
            if card.mib != asked.mib or card.milli < least:
                return False
    return True


def _release_findings(world: World, before: PodSeen, after: PodSeen) -> Iterator[Finding]:
    was_held, is_held = names.GATE in before.gates, names.GATE in after.gates
    if not was_held or is_held or after.asked is None or not after.plan:
        return
    planned = [
        f"{row.epoch} {node}" for node, row in world.rows_of(after.uid) if row.state in HOLDING
    ]
    if after.plan not in planned:
        yield Finding(
            "R1",
            f"Pod {after.key}",
            f"released with plan {after.plan!r}, rows in the ledger: {planned or 'none'}",
        )


def _fence_findings(world: World, node: str, row: RowSeen) -> Iterator[Finding]:
    pod = world.pods_by_uid.get(row.uid)
    if pod is None or pod.has_ended or pod.node or names.GATE in pod.gates:
        return
    if row.epoch > 0 and pod.plan == f"{row.epoch} {node}":
        yield Finding(
            "R1",
            f"Pod {pod.key}",
            f"its row on {node} was freed while the pod is released with plan {pod.plan!r}",
        )

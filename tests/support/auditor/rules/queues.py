"""Q1, Q2, Q4: quotas of non-preemptible pods, and correctness of the published figures.

Q1: non-preemptible pods of a queue do not grow beyond its quota, per node pool, in the project and
in its department. An excess after a quota edit may stay but not grow. The quota is not part of the
ledger's compare-and-swap, so the larger of the present quota and that of `lag_s` ago counts.

Q2, at rest: the fair shares of a department's projects add up to at most the department's, and
those of departments to at most the pool's cards (or the quotas, if these are larger).

Q4, at rest: a queue's published allocation is what the rows of its pods hold. `nominated` rows of a
workload that waits for victims may be counted or not.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from tests.support.auditor.rules.rule import Finding, Rule
from tests.support.auditor.sight import MILLI, LedgerSeen, RowSeen
from tests.support.auditor.world import HOLDING, Step, World

#: (queue kind, queue, pool)
Queue = tuple[str, str, str]


class Queues(Rule):
    """Judges Q1 at every new row, and Q2 and Q4 at rest."""

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        if not isinstance(step.after, LedgerSeen):
            return
        before = step.before.rows if isinstance(step.before, LedgerSeen) else ()
        had = {row.uid: row.milli for row in before if _counts(row)}
        grown = [
            row
            for row in step.after.rows
            if _counts(row) and world.holds(row) and row.milli > had.get(row.uid, 0)
        ]
        pool = world.pool_of(step.after.name)
        touched = {queue for row in grown for queue in _queues_of(world, row.project, pool)}
        if not touched:
            return
        used = _use(world, lambda row: _counts(row) and world.holds(row))
        for queue in sorted(touched):
            quota = world.quota(*queue)
            is_new = step.change.seen_s - quota.changed_s <= self.limits.lag_s
            allowed = max(quota.now, quota.before) if is_new else quota.now
            if used[queue] > allowed:
                yield Finding(
                    "Q1",
                    f"{queue[0]} {queue[1]}",
                    f"non-preemptible work holds {used[queue]} milli in pool {queue[2]}, quota"
                    f" {allowed}; grew by {', '.join(row.key for row in grown)}",
                )

    def at_rest(self, world: World) -> Iterator[Finding]:
        yield from _share_findings(world)
        held = _use(world, world.holds)
        claimed = _use(world, lambda row: world.is_live(row.uid))
        for kind, queues in (("GpuProject", world.projects), ("GpuDepartment", world.departments)):
            for queue in queues.values():
                for pool, said in sorted(queue.allocated.items()):
                    key = (kind, queue.name, pool)
                    if said not in (held[key], claimed[key]):
                        yield Finding(
                            "Q4",
                            f"{kind} {queue.name}",
                            f"reports {said} milli allocated in pool {pool}, rows hold {held[key]}",
                        )


def _counts(row: RowSeen) -> bool:
    return row.non_preemptible and row.state in HOLDING


def _queues_of(world: World, project: str, pool: str) -> list[Queue]:
    """The existing queues that are charged for a row of this project."""
    queues: list[Queue] = []
    if project in world.projects:
        queues.append(("GpuProject", project, pool))
        department = world.department_of(project)
        if department in world.departments:
            queues.append(("GpuDepartment", department, pool))
    return queues


def _use(world: World, is_counted: Callable[[RowSeen], bool]) -> Counter[Queue]:
    """Milli held per queue and pool by the rows that count. O(rows)."""
    used: Counter[Queue] = Counter()
    for ledger in world.ledgers.values():
        pool = world.pool_of(ledger.name) if ledger.rows else ""
        for row in ledger.rows:
            if is_counted(row):
                for queue in _queues_of(world, row.project, pool):
                    used[queue] += row.milli
    return used


def _share_findings(world: World) -> Iterator[Finding]:
    children: Counter[tuple[str, str]] = Counter()
    for project in world.projects.values():
        for pool, milli in project.fair_share.items():
            children[project.department, pool] += milli
    for (department, pool), milli in sorted(children.items()):
        parent = world.departments.get(department)
        if parent is not None and milli > parent.fair_share.get(pool, 0):
            yield Finding(
                "Q2",
                f"GpuDepartment {department}",
                f"its projects' fair shares in pool {pool} sum to {milli} milli,"
                f" its own is {parent.fair_share.get(pool, 0)}",
            )
    capacity: Counter[str] = Counter()
    for ledger in world.ledgers.values():
        capacity[world.pool_of(ledger.name)] += len(ledger.devices) * MILLI
    for pool in sorted({p for each in world.departments.values() for p in each.fair_share}):
        departments = world.departments.values()
        shares = sum(each.fair_share.get(pool, 0) for each in departments)
        most = max(capacity[pool], sum(each.quota.get(pool, 0) for each in departments))
        if shares > most:
            yield Finding(
                "Q2", f"GpuNodePool {pool}", f"fair shares sum to {shares} milli of {most}"
            )

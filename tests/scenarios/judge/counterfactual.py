"""Whether a beneficiary still has its places if some of its victims stay."""

from dataclasses import dataclass
from dataclasses import replace as evolve

from msgspec.structs import replace

from extender.api.reasons import Reason
from extender.policy.decide import decide
from extender.policy.plan import Placement, Settings
from extender.scenario.outcome import Outcome
from extender.scenario.places import PENDING, Place
from extender.scenario.snapshot import take_snapshot
from extender.scenario.world import RunJob, World
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot
from tests.scenarios.judge.allocations import held_later, limit_of, place_now
from tests.scenarios.judge.node_rules import misplaced

_ALLOCATE = Settings(stages=("allocate",))


@dataclass(slots=True)
class WhatIf:
    """The plan without the evictions of `spared`; of all jobs only the beneficiary waits."""

    world: World
    outcome: Outcome
    beneficiary: RunJob
    victims: list[str]
    spared: list[str]

    def fits(self, placed: list[str]) -> bool:
        """Whether all tasks `placed` of the beneficiary find places, and no fewer start at once."""
        if self._is_growing_past_a_share(placed):
            return False
        starting = [id_ for id_ in placed if self.outcome.after[id_].status == "bound"]
        if not starting:
            return len(self._places_of(placed)) == len(placed)
        waiting = [id_ for id_ in placed if id_ not in starting]
        if len(self._places_of(waiting)) == len(waiting):
            return True
        places = self._places_of(placed)
        return len(places) == len(placed) and self._n_now(places, placed) >= len(starting)

    def _places_of(self, placed: list[str]) -> list[Placement]:
        """The places that these of the beneficiary's tasks find while all others keep theirs."""
        snapshot = self._snapshot(set(placed))
        waiting = dict.fromkeys(placed, PENDING)
        if snapshot is None or self._is_over_a_limit() or self._is_misplaced(waiting):
            return []
        plan = decide(snapshot, _ALLOCATE)
        found = [place for admission in plan.admissions for place in admission.placements]
        was = self.outcome.after
        given = {p.pod.uid: Place(was[p.pod.uid].status, p.node, p.cards) for p in found}
        return [] if self._is_misplaced(waiting | given) else found

    def _n_now(self, places: list[Placement], placed: list[str]) -> int:
        """How many of the places are free while all victims are still there."""
        table, n_free = self.world.cluster.free.copy(), 0
        held = self.outcome.after | dict.fromkeys(placed, PENDING)
        for job in self.world.jobs.values():
            for task in job.tasks:
                if (now := place_now(held[task.id])) is not None:
                    table.hold(table.cards.ix[now.node], task.demand, now.cards)
        for place in places:
            ix = table.cards.ix[place.node]
            table.hold(ix, place.pod.demand, place.cards)
            if _has_room(table, ix):
                n_free += 1
            else:
                table.give_back(ix, place.pod.demand, place.cards)
        return n_free

    def _snapshot(self, placed: set[str]) -> Snapshot | None:
        """That moment, or None if a spared victim takes a place that was given away."""
        snapshot = take_snapshot(self.world)
        table = self.world.cluster.free.copy()
        workloads: dict[str, WorkloadView] = {}
        for job in self.world.jobs.values():
            view = snapshot.workloads.get(job.key)
            if view is None:
                continue
            pods = []
            for pod in view.pods:
                place = self._place_of(pod, placed)
                if place is None:
                    continue
                pods.append(_pod_at(pod, place))
                if place.node:
                    table.hold(table.cards.ix[place.node], pod.demand, place.cards)
            if pods:
                pools = self._pools(placed) if job is self.beneficiary else view.pools
                workloads[job.key] = replace(view, pods=tuple(pods), pools=pools)
        nodes = {self.outcome.before[id_].node for id_ in self.spared}
        if not all(_has_room(table, table.cards.ix[node]) for node in nodes):
            return None
        snapshot.nodes, snapshot.workloads = table, workloads
        return snapshot

    def _is_misplaced(self, instead: dict[str, Place]) -> bool:
        """Whether a task has a place that it may not have beside the spared victims, if the
        beneficiary's tasks are where `instead` says."""
        stay = {id_: self.outcome.before[id_] for id_ in self.spared}
        after = self.outcome.after | instead | stay
        return any(misplaced(self.world, evolve(self.outcome, after=after)))

    def _is_over_a_limit(self) -> bool:
        """Whether the spared victims keep a queue above its limit that also gets new places: such
        places would not be given."""
        world, outcome = self.world, self.outcome
        cluster = world.cluster
        growing = {
            queue.name
            for job in world.jobs.values()
            if tasks_placed(job, outcome)
            for queue in cluster.lineage(job.spec.queue)
        }
        places = outcome.after | {id_: outcome.before[id_] for id_ in self.spared}
        spared = next(job for job in world.jobs.values() if _is_of(job, self.spared[0]))
        own = {queue.name for queue in cluster.lineage(spared.spec.queue)} & growing
        return any(
            amount > limit_of(world, queue, pool, at)
            for (queue, pool, at), amount in held_later(world, places).queues.items()
            if queue in own and pool
        )

    def _is_growing_past_a_share(self, placed: list[str]) -> bool:
        """Whether a queue above the beneficiary's would hold more than it deserves, and more than
        before the evictions: by reclaim no queue grows so."""
        world, outcome = self.world, self.outcome
        if not any(
            eviction.reason is Reason.RECLAIMED and eviction.pod.uid in self.victims
            for eviction in outcome.plan.evictions
        ):
            return False
        stay = {id_: outcome.before[id_] for id_ in self.spared}
        back = {id_: outcome.before[id_] for id_ in self.victims}
        before = held_later(world, outcome.after | dict.fromkeys(placed, PENDING) | back).queues
        above = {queue.name for queue in world.cluster.lineage(self.beneficiary.spec.queue)}
        above.discard(self.beneficiary.spec.queue)
        then = held_later(world, outcome.after | stay).queues
        return any(
            amount > max(share.fair_share[at], share.quota[at], before[queue, pool, at])
            for (queue, pool, at), amount in then.items()
            if queue in above and (share := outcome.plan.shares.get((queue, pool)))
        )

    def _pools(self, placed: set[str]) -> tuple[str, ...]:
        """Pools in which the beneficiary may be placed; in strict order others may be before it in
        those that it was not placed in, even if it runs there."""
        job, cluster = self.beneficiary, self.world.cluster
        if cluster.case.settings.job_order != "strict-fifo":
            return job.pools
        nodes = {self.outcome.after[id_].node for id_ in placed}
        return tuple(pool for pool in job.pools if pool in map(cluster.pool_of_node, nodes))

    def _place_of(self, pod: PodView, placed: set[str]) -> Place | None:
        """Where the pod is then; None where it is gone or does not matter."""
        if pod.uid in self.spared:
            return self.outcome.before[pod.uid]
        if pod.uid in placed:
            return PENDING
        place = self.outcome.after[pod.uid]
        return Place("running", place.node, place.cards) if place.has_later else None


def tasks_placed(job: RunJob, outcome: Outcome) -> list[str]:
    """Tasks of the job that get places in this cycle."""
    return [
        task.id
        for task in job.tasks
        if outcome.after[task.id] is not outcome.before[task.id]
        and outcome.after[task.id].status in ("bound", "nominated")
        and not outcome.after[task.id].is_moved
    ]


def _is_of(job: RunJob, id_: str) -> bool:
    return any(task.id == id_ for task in job.tasks)


def _pod_at(pod: PodView, place: Place) -> PodView:
    is_waiting = place.status == "pending"
    return replace(
        pod,
        state="gated" if is_waiting else "bound",
        is_gated=is_waiting,
        is_terminating=False,
        node=place.node,
        cards=place.cards,
        started_at=0 if is_waiting else pod.started_at,
    )


def _has_room(table: NodeTable, ix: int) -> bool:
    """Whether no card of the node, nor the node itself, is over what it has."""
    figures = (table.free_cpu_milli[ix], table.free_memory_mib[ix], table.free_pods[ix])
    counted = (table.free_counted[ix] or {}).values()
    return all(left >= 0 for left in (*table.cards.free_of(ix), *figures, *counted))

"""Decides in the same cycle what follows from a plan, in rounds whose plans are merged into one.

A plan that evicts or moves pods frees resources, and its victims are pending again. The next round
decides on `Rounds.snapshot_after`, the snapshot once the plan is carried out. In the merged plan a
pod is evicted only if it has no placement at the end, moved only if it ends elsewhere, and started
only if it still has its placement then.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from msgspec.structs import replace

from extender.api.reasons import Reason, Refused
from extender.policy.placement.same_cards import keep_cards
from extender.policy.plan import ALL_STAGES, Admission, Eviction, Move, Placement, Plan, State
from extender.policy.queues.tree import tally_of
from extender.policy.session import Session
from extender.policy.spared_moves import SparedMoves
from extender.policy.workloads.disruption_budgets import Budgets
from extender.policy.workloads.gangs import is_satisfied, live_pods
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot

#: Rounds of one cycle. A chain of evictions seldom has more than four links; the next cycle decides
#: the rest of a longer one.
MOST_ROUNDS: Final = 8


@dataclass(slots=True)
class Rounds:
    """The rounds of one cycle so far.

    `nodes` is a copy of the snapshot's table from before the first round. `may_move_reclaimed`: a
    victim of reclaim that has another placement at the end may be moved there.
    """

    snapshot: Snapshot
    nodes: NodeTable
    may_move_reclaimed: bool
    _plans: list[Plan] = field(default_factory=list)
    _before: dict[str, WorkloadView] = field(default_factory=dict)
    _now: Snapshot = field(init=False)
    _budgets: Budgets = field(default_factory=Budgets)
    _may_be_taken_back: bool = False

    def __post_init__(self) -> None:
        self._now = self.snapshot

    def is_next(self) -> bool:
        """Whether the last plan changed anything, so that another round may decide more. Nothing
        follows from a first plan that only uses free resources, unless these may be reclaimed."""
        last = self._plans[-1]
        has_changed = _has_victims(last) or self._may_be_taken_back
        if len(self._plans) > 1:
            has_changed = has_changed or any(map(_is_new, last.admissions))
        return has_changed and len(self._plans) < MOST_ROUNDS

    def add(self, plan: Plan, budgets: Budgets, *, may_be_taken_back: bool = False) -> None:
        """Add the plan of a round, which leaves these disruption budgets. `may_be_taken_back`: it
        starts work above the share of its queue, which may entitle pending work to reclaim."""
        self._plans.append(plan)
        self._budgets, self._may_be_taken_back = budgets, may_be_taken_back
        if _has_victims(plan) or may_be_taken_back or len(self._plans) > 1:
            self._carry_out(plan)

    def snapshot_after(self) -> Snapshot:
        """The snapshot on which the next round decides; its table is a copy."""
        left, placed = self._budgets.left, frozenset(self._placed())
        moved = frozenset(move.pod.uid for plan in self._plans for move in plan.moves)
        return dataclasses.replace(
            self._now,
            nodes=self.nodes.copy(),
            budgets=left,
            placed=placed,
            promised=placed - self.started_at_once() - moved,
            moved=moved,
            dropped=frozenset(self.drops()),
        )

    def _placed(self) -> Iterator[str]:
        """UIDs of the pods that any round so far placed."""
        for plan in self._plans:
            yield from plan.placed_uids()
            yield from (move.pod.uid for move in plan.moves)

    def _carry_out(self, plan: Plan) -> None:
        """Apply the plan to the table, views and tally: placed pods run, evicted pods are pending.

        Nominations of earlier cycles do not change, as the first round has settled them.
        """
        after = _Views(self._now)
        now_s = self.snapshot.now_s
        for eviction in plan.evictions:
            pod = eviction.pod
            self._release(pod)
            after.set(eviction.workload, pod.uid, pod.after_eviction())
        for move in plan.moves:
            pod = move.pod
            self._release(pod)
            self._hold(move.placement)
            after.set(move.workload, pod.uid, _started(move.placement, now_s))
        for admission in plan.admissions:
            for placement in admission.placements:
                if placement.pod.state == "nominated":
                    continue
                self._hold(placement)
                pod = placement.pod
                after.set(admission.workload.key, pod.uid, _started(placement, now_s))
        for before, changed in after.changed(now_s):
            self._before.setdefault(before.key, before)
            after.tally.replace(before, changed)
            after.workloads[before.key] = changed
        self._now = dataclasses.replace(self._now, workloads=after.workloads, tally=after.tally)

    def _release(self, pod: PodView) -> None:
        ix = self.nodes.ix_of(pod.node)
        if ix is not None:
            self.nodes.give_back(ix, pod.demand, pod.cards)

    def _hold(self, placement: Placement) -> None:
        self.nodes.hold(self.nodes.cards.ix[placement.node], placement.pod.demand, placement.cards)

    def plan(self, last: Session) -> Plan:
        """The merged plan of all rounds; `last` is the session of the last one."""
        first = self._plans[0]
        if not any(map(_has_victims, self._plans)):
            # Nothing was taken back from the first plan, so it is complete.
            return first
        net = _NetChange(self)
        net.compare(last)
        found = Plan(shares=first.shares, drops=list(self.drops()))
        found.admissions, found.evictions, found.moves = net.admissions, net.evictions, net.moves
        found.waits = dict(sorted(self._waits(net)))
        held_back = {held.uid: held for plan in self._plans for held in plan.held_back}
        found.held_back = [held_back[uid] for uid in sorted(held_back)]
        found.cut = frozenset().union(*(plan.cut for plan in self._plans))
        found.turns = tuple(dict.fromkeys(key for plan in self._plans for key in plan.turns))
        stages = {stage for plan in self._plans for stage in plan.cut_stages}
        found.cut_stages = tuple(stage for stage in ALL_STAGES if stage in stages)
        return found

    def _waits(self, net: "_NetChange") -> Iterator[tuple[str, Refused]]:
        """Why workloads are pending at the end that were pending or nominated before."""
        last, first, drops = self._plans[-1].waits, self._plans[0].waits, self.drops()
        yield from drops.items()
        for key in (last.keys() | first.keys()) - drops.keys():
            if key in self._before and key not in net.waiting:
                continue
            refused = last.get(key) or first.get(key)
            if refused is not None and (key in first or key in net.waiting):
                yield key, refused

    def drops(self) -> dict[str, Refused]:
        """By key, why nominations of earlier cycles are dropped, in the round that did so first."""
        found: dict[str, Refused] = {}
        for plan in self._plans:
            for key in plan.drops:
                found.setdefault(key, plan.waits[key])
        return found

    def evictions(self) -> Iterator[Eviction | Move]:
        """The evictions and moves of each round, the first round first."""
        for plan in self._plans:
            yield from plan.evictions
            yield from plan.moves

    def started_at_once(self) -> set[str]:
        """UIDs of the pods that the first plan starts without waiting, if later plans neither evict
        nor move any pod of their workload."""
        touched = {each.workload for plan in self._plans[1:] for each in plan.evictions}
        touched |= {each.workload for plan in self._plans[1:] for each in plan.moves}
        return {
            placement.pod.uid
            for admission in self._plans[0].admissions
            if admission.state == "reserved" and admission.workload.key not in touched
            for placement in admission.placements
        }

    def settled_nominations(self) -> list[Admission]:
        """Admissions of pods that an earlier cycle nominated."""
        found = []
        drops = self.drops()
        for admission in self._plans[0].admissions:
            if admission.workload.key in drops:
                continue
            old = tuple(each for each in admission.placements if each.pod.state == "nominated")
            if old:
                found.append(Admission(admission.workload, old, admission.state))
        return found

    def changes(self) -> Iterator[tuple[WorkloadView, WorkloadView]]:
        """Each workload that any plan changed, before the first round and now."""
        for key, before in self._before.items():
            yield before, self._now.workloads[key]

    def project_of(self, key: str) -> str:
        """The project of a workload."""
        return self._now.workloads[key].project

    def may_move(self, pod: PodView, reason: Reason) -> bool:
        """Whether a victim that has another placement at the end may be moved there."""
        if reason is Reason.RECLAIMED and not self.may_move_reclaimed:
            return False
        return pod.is_controlled and not pod.budgets and pod.uid not in self._budgets.refused


class _Views:
    """The workloads after a plan; `workloads` and `tally` are copies of the snapshot's."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.workloads = dict(snapshot.workloads)
        self.tally = tally_of(snapshot).copy()
        self._pods: dict[str, dict[str, PodView | None]] = {}

    def set(self, key: str, uid: str, pod: PodView | None) -> None:
        """Replace the pod by this one, or remove it."""
        self._pods.setdefault(key, {})[uid] = pod

    def changed(self, now_s: int) -> Iterator[tuple[WorkloadView, WorkloadView]]:
        """Each changed workload, before and after."""
        for key, pods in self._pods.items():
            before = self.workloads[key]
            found = [pods.get(pod.uid, pod) for pod in before.pods]
            live = tuple(pod for pod in found if pod is not None)
            was_waiting = any(pod.state == "gated" for pod in before.pods)
            waits_since = before.waits_since if was_waiting else now_s
            yield before, replace(before, pods=live, waits_since=waits_since, stale_since=None)


@dataclass(slots=True)
class _NetChange:
    """The difference between the first round's snapshot and the last round's end.

    `waiting` are workloads with pods that were pending before and still are.
    """

    rounds: Rounds
    admissions: list[Admission] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    _victims: dict[str, Eviction | Move] = field(default_factory=dict)
    _ends_at: dict[str, PodView] = field(default_factory=dict)

    def compare(self, last: Session) -> None:
        """Compute the difference; `last` is the session of the last round."""
        rounds = self.rounds
        for each in rounds.evictions():
            self._victims.setdefault(each.pod.uid, each)
        evicted = {each.pod.uid for each in rounds.evictions() if isinstance(each, Eviction)}
        only_moved = self._victims.keys() - evicted
        changes = list(rounds.changes())
        ends = {pod.uid: pod for _, after in changes for pod in after.pods if pod.node}
        for before, _ in changes:
            self._keep_place(before, ends)
        at_once = rounds.started_at_once()
        members = [(pod, before) for before, _ in changes for pod in before.pods]
        waiting = ends.keys() - at_once
        SparedMoves(last, ends).run(
            ((p, w) for p, w in members if p.state == "bound" and p.uid in self._victims),
            ((p, w) for p, w in members if p.state == "gated" and p.uid in waiting),
        )
        pods = chain.from_iterable(before.pods for before, _ in changes)
        # A pod that starts at once keeps its cards, which are free now.
        later = (p for p in pods if p.uid in self._victims or p.state == "gated")
        keep_cards((p for p in later if p.uid not in at_once), ends)
        for before, after in changes:
            ends_at = {pod.uid: ends[pod.uid] for pod in after.pods if pod.uid in ends}
            if self._is_broken_gang(before, ends_at):
                ends_at = {uid: pod for uid, pod in ends_at.items() if uid in only_moved}
            self._ends_at.update(ends_at)
        self.admissions += rounds.settled_nominations()
        for before, _ in changes:
            self._admit(before, at_once)
        beneficiaries = self._beneficiaries()
        for before, _ in changes:
            for pod in before.pods:
                if pod.state == "bound" and pod.uid in self._victims:
                    self._evict_or_move(before, pod, beneficiaries)

    def _keep_place(self, workload: WorkloadView, ends: dict[str, PodView]) -> None:
        """Let a victim keep its place on a node where a pending pod of the workload that is like it
        would start instead."""
        pods = workload.pods
        starting = [pod for pod in pods if pod.state == "gated" and pod.uid in ends]
        victims = [pod for pod in pods if pod.uid in self._victims and pod.uid not in ends]
        if not starting or not victims:
            return
        starting.sort(key=lambda pod: pod.key)
        for pod in sorted(victims, key=lambda pod: (pod.started_at, pod.key)):
            for other in starting:
                place = ends.get(other.uid)
                if place is not None and place.node == pod.node and _are_alike(pod, other):
                    ends[pod.uid] = replace(pod, cards=place.cards)
                    del ends[other.uid]
                    break

    def _is_broken_gang(self, workload: WorkloadView, ends_at: Mapping[str, PodView]) -> bool:
        """Whether a gang would be below its minimum, since some of its pods end elsewhere but may
        not be moved there. It is then evicted whole, as in the round that evicted it."""
        live = live_pods(workload)
        stay = [
            pod
            for pod in workload.pods
            if pod.uid in ends_at and not pod.is_terminating and self._may_end_at(pod, ends_at)
        ]
        return is_satisfied(workload, live) and not is_satisfied(workload, stay)

    def _may_end_at(self, pod: PodView, ends_at: Mapping[str, PodView]) -> bool:
        """Whether the pod stays at, starts at, or may be moved to its placement at the end."""
        victim = self._victims.get(pod.uid)
        return (
            pod.state != "bound"
            or victim is None
            or isinstance(victim, Move)
            or _is_same_placement(pod, ends_at[pod.uid])
            or self.rounds.may_move(pod, victim.reason)
        )

    def _admit(self, workload: WorkloadView, at_once: set[str]) -> None:
        placed: dict[State, list[Placement]] = {}
        for pod in workload.pods:
            if pod.state != "gated":
                continue
            end = self._ends_at.get(pod.uid)
            if end is None:
                self.waiting.add(workload.key)
                continue
            state: State = "reserved" if pod.uid in at_once else "nominated"
            placed.setdefault(state, []).append(Placement(pod, end.node, end.cards))
        for state, placements in placed.items():
            self.admissions.append(Admission(workload, tuple(placements), state))

    def _evict_or_move(
        self, workload: WorkloadView, pod: PodView, beneficiaries: Mapping[str, dict[str, None]]
    ) -> None:
        """Evict or move the pod, unless it ends at its old placement."""
        end, victim = self._ends_at.get(pod.uid), self._victims[pod.uid]
        if end is not None and _is_same_placement(pod, end):
            return
        here = beneficiaries.get(pod.node, {})
        everywhere = beneficiaries[""]
        beneficiary, reason = victim.beneficiary, victim.reason
        note = "" if isinstance(victim, Move) else victim.note
        if beneficiary and beneficiary not in everywhere:
            remaining = (key for key in chain(here, everywhere) if key != workload.key)
            beneficiary = next(remaining, beneficiary)
            is_own = self.rounds.project_of(beneficiary) == workload.project
            if reason is Reason.PREEMPTED and not is_own:
                # Its project's work, for which it was preempted, gave way to another project's.
                reason, note = Reason.RECLAIMED, ""
        if end is not None and self._may_end_at(pod, self._ends_at):
            place = Placement(pod, end.node, end.cards)
            why = victim.reason if isinstance(victim, Move) else Reason.MOVED
            self.moves.append(Move(place, workload.key, why, beneficiary))
            return
        if isinstance(victim, Move):
            last = self._last_eviction(pod.uid)
            reason, note = last.reason, last.note
        self.evictions.append(Eviction(pod, workload.key, reason, beneficiary, note))

    def _last_eviction(self, uid: str) -> Eviction:
        """The last eviction of a pod that was moved first."""
        return [
            each
            for each in self.rounds.evictions()
            if isinstance(each, Eviction) and each.pod.uid == uid
        ][-1]

    def _beneficiaries(self) -> dict[str, dict[str, None]]:
        """Nominated workloads by node and (under "") all of them.

        Each set is a dict, which keeps the order of the admissions.
        """
        found: dict[str, dict[str, None]] = {"": {}}
        for admission in self.admissions:
            if admission.state == "nominated":
                for placement in admission.placements:
                    found.setdefault(placement.node, {})[admission.workload.key] = None
                found[""][admission.workload.key] = None
        return found


def _has_victims(plan: Plan) -> bool:
    return bool(plan.evictions or plan.moves)


def _is_new(admission: Admission) -> bool:
    """Whether the admission is more than a nomination of an earlier cycle."""
    return any(placement.pod.state != "nominated" for placement in admission.placements)


def _is_same_placement(one: PodView, other: PodView) -> bool:
    return one.node == other.node and one.cards == other.cards


def _are_alike(one: PodView, other: PodView) -> bool:
    """Whether one pod of a workload may run where the other one would."""
    is_same_role = (one.group, one.order) == (other.group, other.order)
    return is_same_role and one.demand == other.demand and one.constraints == other.constraints


def _started(placement: Placement, now_s: int) -> PodView:
    return placement.pod.started(placement.node, placement.cards, now_s)

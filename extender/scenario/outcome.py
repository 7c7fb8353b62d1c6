"""A cycle's decision about every task, read from its plan, and its output line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.api.kinds import CardShare
from extender.policy.plan import Plan
from extender.scenario.model.case import Case
from extender.scenario.places import Place
from extender.scenario.world import World
from extender.state.model import UNLIMITED, Amounts


@dataclass(slots=True)
class Outcome:
    """One cycle: where every task was, where it is by the plan, and each queue's share.

    `cycle` counts from 1. `fair_shares` are sums over node pools; None for a resource without a
    quota. Memory is in the scenario's unit. `took_us` is the time of the decision alone.
    """

    cycle: int
    before: dict[str, Place]
    after: dict[str, Place]
    plan: Plan
    fair_shares: dict[str, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    took_us: int = 0

    def changed(self) -> Iterable[tuple[str, Place, Place]]:
        """The tasks that the decision changed: (id, before, after)."""
        for id_, place in self.after.items():
            if place is not self.before[id_]:
                yield id_, self.before[id_], place


def read_plan(world: World, plan: Plan, cycle: int) -> Outcome:
    """The outcome of the plan in the current world."""
    before = world.places()
    after = dict(before)
    for admission in plan.admissions:
        status = "bound" if admission.state == "reserved" else "nominated"
        for each in admission.placements:
            after[each.pod.uid] = Place(status, each.node, each.cards)  # type: ignore[arg-type]
    for key in plan.drops:
        for pod in _pods(world, key):
            if before[pod].status == "nominated":
                after[pod] = Place()
    for eviction in plan.evictions:
        was = before[eviction.pod.uid]
        after[eviction.pod.uid] = Place("evicted", was.node, was.cards)
    for move in plan.moves:
        was, to = before[move.pod.uid], move.placement
        after[to.pod.uid] = Place("nominated", to.node, to.cards, was.node, was.cards)
    return Outcome(cycle, before, after, plan, _fair_shares(plan))


def decision(case: Case, world: World, outcome: Outcome) -> dict[str, Any]:
    """The outcome as one line of decisions, in the terms of the format."""
    shares = {
        queue: {
            "gpuMilli": gpu,
            "cpuMilli": cpu,
            "memoryMiB": _mib(memory, world.cluster.memory_unit),
        }
        for queue, (gpu, cpu, memory) in outcome.fair_shares.items()
    }
    return {
        "id": case.id,
        "cycle": outcome.cycle,
        "tasks": {id_: _task_line(place) for id_, place in outcome.after.items()},
        "fairShare": shares,
        "tookUs": outcome.took_us,
    }


def _task_line(place: Place) -> dict[str, Any]:
    line: dict[str, Any] = {"status": place.status}
    if place.node:
        line["node"] = place.node
    if place.cards:
        line["cards"] = _card_lines(place.node, place.cards)
    if place.is_moved:
        line["from"] = place.from_node
        line["fromCards"] = _card_lines(place.from_node, place.from_cards)
    return line


def _card_lines(node: str, cards: Iterable[CardShare]) -> dict[str, int]:
    return {f"{node}/{card.index}": card.milli for card in cards}


def _mib(amount: int | None, unit: int) -> int | None:
    return None if amount is None else amount * unit >> 20


def _pods(world: World, key: str) -> Iterable[str]:
    for job in world.jobs.values():
        if job.key == key:
            return [task.id for task in job.tasks]
    return []


def _fair_shares(plan: Plan) -> dict[str, tuple[int | None, int | None, int | None]]:
    pools: dict[str, list[tuple[Amounts, Amounts]]] = {}
    for (queue, _), share in plan.shares.items():
        pools.setdefault(queue, []).append((share.fair_share, share.quota))
    return {queue: _sums(found) for queue, found in pools.items()}


def _sums(pools: list[tuple[Amounts, Amounts]]) -> tuple[int | None, int | None, int | None]:
    def total(at: int) -> int | None:
        is_counted = at == 0 or all(quota[at] < UNLIMITED for _, quota in pools)
        amount = sum(share[at] for share, _ in pools)
        return amount if is_counted and amount < UNLIMITED else None

    return total(0), total(1), total(2)


def by_card(places: Mapping[str, Place]) -> dict[tuple[str, int], list[tuple[str, Place]]]:
    """Tasks on each card (node, index), with the places that they hold or are leaving."""
    found: dict[tuple[str, int], list[tuple[str, Place]]] = {}
    for id_, place in places.items():
        for card in place.cards:
            found.setdefault((place.node, card.index), []).append((id_, place))
        if place.is_moved:
            for card in place.from_cards:
                leaving = Place("evicted", place.from_node, place.from_cards)
                found.setdefault((place.from_node, card.index), []).append((id_, leaving))
    return found

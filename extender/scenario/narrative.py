"""Describes a cycle in sentences: placements, evictions and beneficiaries, reasons for waiting."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from extender.api.reasons import SENTENCES
from extender.api.units import count_gpus, format_gpus
from extender.policy.plan import Eviction, Move, QueueShare
from extender.scenario.outcome import Outcome
from extender.scenario.places import Place
from extender.scenario.world import World
from extender.state.model import GPU, MEMORY, UNLIMITED

_MEMORY: Final = re.compile(r"\b([0-9]+)( MiB of memory)")


@dataclass(slots=True, frozen=True)
class ShareRow:
    """A queue's figures for one resource, as users write them."""

    queue: str
    resource: str
    quota: str
    fair_share: str
    allocated: str


@dataclass(slots=True)
class Story:
    """One cycle in sentences, by subject.

    `shares` has a row for the GPUs of every queue and pool, and for CPU and memory if they are
    bounded.
    """

    cycle: int
    placed: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    shares: list[ShareRow] = field(default_factory=list)


def tell(world: World, outcome: Outcome) -> Story:
    """The story of one cycle, decided on the current world."""
    story = Story(outcome.cycle)
    names = {job.key: name for name, job in world.jobs.items()}
    for job in world.jobs.values():
        changes = [
            (task.id, outcome.after[task.id])
            for task in job.tasks
            if outcome.after[task.id] is not outcome.before[task.id]
        ]
        story.placed += _placed(changes)
    story.leaving += _evicted(outcome.plan.evictions, names)
    story.leaving += _moved(outcome.plan.moves, names)
    for key, refused in outcome.plan.waits.items():
        detail = (refused.detail or SENTENCES[refused.reason]).removeprefix(f"{key}: ")
        detail = _in_mib(detail, world.cluster.memory_unit)
        story.waiting.append(f"{names.get(key, key)} waits: {refused.reason}, {detail}.")
    for (queue, pool), share in outcome.plan.shares.items():
        named = queue if len(world.cluster.pools) == 1 else f"{queue} in {pool}"
        story.shares += _rows(named, share, world.cluster.memory_unit)
    return story


def _rows(queue: str, share: QueueShare, memory_unit: int) -> Iterator[ShareRow]:
    for at, resource in enumerate(("GPU", "CPU", "MiB of memory")):
        bounds = (share.quota[at], share.limit[at])
        if at == GPU or any(bound < UNLIMITED for bound in bounds):
            amounts = (share.quota[at], share.fair_share[at], share.allocated[at])
            if at == MEMORY:
                in_words = (_mib(amount, memory_unit) for amount in amounts)
            else:
                in_words = (_thousandths(amount) for amount in amounts)
            yield ShareRow(queue, resource, *in_words)


def _placed(changes: Iterable[tuple[str, Place]]) -> Iterator[str]:
    """Placements: one sentence for tasks of a job that share status and node."""
    got = [(id_, p) for id_, p in changes if p.status in ("bound", "nominated") and not p.is_moved]
    for (status, node), group in groupby(got, key=lambda each: (each[1].status, each[1].node)):
        found = list(group)
        held, who = _held([place for _, place in found]), _list([id_ for id_, _ in found])
        is_one = len(found) == 1
        if status == "bound":
            yield f"{who} {'starts' if is_one else 'start'} on {node}{held}."
        elif is_one:
            yield f"{who} is nominated to {node}{held} and waits until that place is free."
        else:
            yield f"{who} are nominated to {node}{held} and wait until those places are free."


def _evicted(evictions: Iterable[Eviction], names: dict[str, str]) -> Iterator[str]:
    keyed = sorted(evictions, key=lambda e: (e.beneficiary, e.workload, e.reason))
    for (beneficiary, _, reason), group in groupby(
        keyed, key=lambda e: (e.beneficiary, e.workload, e.reason)
    ):
        found = list(group)
        receiver = f" for {names.get(beneficiary, beneficiary)}" if beneficiary else ""
        nodes = _list(sorted({each.pod.node for each in found}))
        verb = "is" if len(found) == 1 else "are"
        who = _list([each.pod.uid for each in found])
        yield f"{who} {verb} evicted from {nodes}{receiver}: {reason}, {SENTENCES[reason]}."


def _moved(moves: Iterable[Move], names: dict[str, str]) -> Iterator[str]:
    for move in moves:
        pod, to = move.pod, move.placement.node
        receiver = (
            f" for {names.get(move.beneficiary, move.beneficiary)}" if move.beneficiary else ""
        )
        where = f"moves from {pod.node} to {to}" if pod.node != to else f"moves within {to}"
        yield f"{pod.uid} {where}{receiver}: {move.reason}, {SENTENCES[move.reason]}."


def _in_mib(detail: str, memory_unit: int) -> str:
    """A refusal with its memory in MiB; the policy writes MiB for any unit. See `amounts`."""
    return _MEMORY.sub(lambda found: f"{_mib(int(found[1]), memory_unit)}{found[2]}", detail)


def _list(ids: list[str]) -> str:
    """Names separated by commas; many are shortened."""
    if len(ids) <= 4:
        return " and ".join(([", ".join(ids[:-1])] if len(ids) > 1 else []) + ids[-1:])
    return f"{', '.join(ids[:3])} and {len(ids) - 3} more"


def _held(places: list[Place]) -> str:
    milli = sum(card.milli for place in places for card in place.cards)
    return f" with {count_gpus(milli)}" if milli else ""


def _thousandths(milli: int) -> str:
    return "unlimited" if milli >= UNLIMITED else format_gpus(milli)


def _mib(units: int, memory_unit: int) -> str:
    return "unlimited" if units >= UNLIMITED else str(units * memory_unit >> 20)

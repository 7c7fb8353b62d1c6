"""`ballast replay near-sets`: how often multi-card pods get near cards, with openb's pods.

openb has no topology within its nodes. Here each node of eight cards has two sets of four and four
pairs, each of four cards two pairs. Pods fill the cluster as in `ballast replay openb`, under our
own policy. Then as many pods arrive again, and before each a randomly drawn pod ends until there is
room.
"""

import random
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from extender.api import names
from extender.api.card_sets import known_card_sets
from extender.api.kinds import CardShare
from extender.cli.terminal.output import data_option, wide_console
from extender.lab.openb.command import SEEDS
from extender.lab.openb.data import (
    DataError,
    OpenbCluster,
    OpenbTrace,
    PodKind,
    load_cluster,
    load_trace,
)
from extender.lab.openb.policies import FragPolicy, Start
from extender.lab.openb.replay import draw
from extender.policy.placement.near_cards import pick_near

_PAIRS: Final = "0-1.2-3.4-5.6-7"
_LABELS: Final = {
    8: {names.LABEL_CARDS_BY_NUMA: "0-3.4-7", names.LABEL_CARDS_BY_NVLINK: _PAIRS},
    4: {names.LABEL_CARDS_BY_NVLINK: "0-1.2-3"},
}
#: Pod sizes in cards, which are also the sizes of the sets.
SIZES: Final = (2, 4)


@dataclass(slots=True)
class Counts:
    """Pods of a size on nodes with sets of that size: all, and those within one set."""

    pods: int = 0
    near: int = 0

    @property
    def percent(self) -> float:
        """The percentage of near pods."""
        return 100 * self.near / self.pods if self.pods else 0.0


class NearPolicy(FragPolicy):
    """Our policy, with cards chosen as the controller does; pods can end."""

    #: Whether the nodes' labels state which of their cards are near.
    are_known = True

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._sets = [_LABELS.get(n, {}) for n in self.nodes.cards.n_cards]
        if self.are_known:
            self.nodes.labels[:] = self._sets
        self._placed: list[tuple[int, PodKind, list[CardShare]]] = []
        self.counts = {size: Counts() for size in SIZES}

    def pick_cards(self, ix: int, shape: PodKind) -> list[int]:
        """As the controller does, with or without labels."""
        chosen = super().pick_cards(ix, shape)
        if self.card_of(ix, shape) < 0 and self.are_known:
            chosen = list(pick_near(self.nodes, ix, shape.demand, 0))
        self._placed.append((ix, shape, [CardShare(at, shape.demand.milli, 0) for at in chosen]))
        self._count(ix, chosen)
        return chosen

    def leave(self, rng: random.Random) -> None:
        """End a random pod."""
        at = rng.randrange(len(self._placed))
        self._placed[at], self._placed[-1] = self._placed[-1], self._placed[at]
        ix, shape, cards = self._placed.pop()
        self.nodes.give_back(ix, shape.demand, cards)
        self.note(ix, shape)

    def _count(self, ix: int, chosen: list[int]) -> None:
        kinds = [
            sets
            for sets in known_card_sets(self._sets[ix])
            if any(len(each) == len(chosen) for each in sets)
        ]
        if len(chosen) in self.counts and kinds:
            counts = self.counts[len(chosen)]
            counts.pods += 1
            counts.near += any(each.issuperset(chosen) for sets in kinds for each in sets)


class UnknowingPolicy(NearPolicy):
    """The same on nodes without labels."""

    are_known = False


def fill_and_renew(
    cluster: OpenbCluster, trace: OpenbTrace, policy: type[NearPolicy], seed: int
) -> tuple[dict[int, Counts], dict[int, Counts]]:
    """By pod size: near pods while the cluster filled, and while pods came and ended."""
    arrivals, order = draw(cluster, trace, seed)
    rng = random.Random(seed)  # noqa: S311 - a simulation, no secret
    filling = policy(Start(cluster, array("i", order), trace, rng))
    for at in arrivals:
        filling.place(trace.shapes[at])
    filled, filling.counts = filling.counts, {size: Counts() for size in SIZES}
    for at in arrivals:
        for _ in range(10):
            filling.leave(rng)
            if filling.place(trace.shapes[at]):
                break
    return filled, filling.counts


@click.command("near-sets")
@data_option
@click.option("--trace", "traces", multiple=True, default=["default", "multigpu50"])
@click.option("--seeds", type=SEEDS, default="42-51", show_default=True)
def near_sets(folder: Path, traces: tuple[str, ...], seeds: range) -> None:
    """Count how often pods of 2 and 4 cards get near ones, on the pods of the openb trace.

    Nodes of 8 cards are assumed to have two sets of four and four pairs; first without labels that
    state them, then with.
    """
    table = Table(caption="pods that get one pair or one set of four, %")
    for name in ("trace", "nodes", "cards", "filling", "coming and leaving"):
        table.add_column(name, no_wrap=True)
    try:
        cluster = load_cluster(folder)
        loaded = [load_trace(folder, name, cluster) for name in traces]
    except DataError as error:
        raise click.ClickException(str(error)) from None
    for trace in loaded:
        for row in _rows(cluster, trace, seeds):
            table.add_row(trace.name, *row)
    wide_console(120).print(table)


def _rows(cluster: OpenbCluster, trace: OpenbTrace, seeds: range) -> Iterator[tuple[str, ...]]:
    for name, policy in (("say nothing", UnknowingPolicy), ("state sets", NearPolicy)):
        runs = [fill_and_renew(cluster, trace, policy, seed) for seed in seeds]
        for size in SIZES:
            phases = (_sum(each[size] for each in phase) for phase in zip(*runs, strict=True))
            yield name, str(size), *(f"{each.percent:.1f} of {each.pods}" for each in phases)


def _sum(counts: Iterable[Counts]) -> Counts:
    listed = list(counts)
    return Counts(sum(each.pods for each in listed), sum(each.near for each in listed))

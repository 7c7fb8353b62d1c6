"""Assigns cards to tasks that run at the start: the cards that they name, else exclusive ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.scenario.cluster import Cluster, n_cards
from extender.scenario.errors import ScenarioError
from extender.scenario.model.fleet import Node
from extender.scenario.model.jobs import Task
from extender.scenario.model.values import StartState
from extender.scenario.places import Place
from extender.state.card_shares import card_shares


@dataclass(slots=True)
class Seated:
    """A task that has a node at the start, and for how many seconds it has run there."""

    id: str
    task: Task
    demand: Demand
    running_s: int = 0
    place: Place = field(default_factory=Place)

    @property
    def state(self) -> StartState:
        """Its state in the first cycle: a task that the file calls bound runs by then."""
        return "running" if self.task.state == "bound" else self.task.state


@dataclass(slots=True)
class _Cards:
    """Free milli of each card of one node, now and after all terminating tasks have ended."""

    node: Node
    now: list[int]
    later: list[int]
    index_of: dict[str, int] = field(default_factory=dict)

    def hold(self, place: Place) -> None:
        for card in place.cards:
            if place.has_now:
                self.now[card.index] -= card.milli
            if place.has_later:
                self.later[card.index] -= card.milli


def seat(cluster: Cluster, held: Iterable[Place], tasks: list[Seated]) -> None:
    """Give every task its cards, beside those in `held`; raises ScenarioError.

    Tasks that name their cards go first. A number names the card with this index, if there is one.
    """
    tables = {
        node.name: _Cards(node, [MILLI_PER_GPU] * n_cards(node), [MILLI_PER_GPU] * n_cards(node))
        for node in cluster.case.nodes
    }
    for place in held:
        if place.node:
            tables[place.node].hold(place)
    for each in tasks:
        if each.task.node not in tables:
            raise ScenarioError(f"{cluster.case.id}: {each.id}: there is no node {each.task.node}")
    named = [each for each in tasks if each.task.cards and each.demand.devices]
    for wants_number in (True, False):
        for each in named:
            _number_names(cluster, tables[each.task.node or ""], each, wants_number=wants_number)
    for each in named:
        table = tables[each.task.node or ""]
        _put(cluster, table, each, [table.index_of[name] for name in each.task.cards])
    others = [each for each in tasks if not (each.task.cards and each.demand.devices)]
    for each in sorted(others, key=lambda each: each.state == "nominated"):
        table = tables[each.task.node or ""]
        _put(cluster, table, each, _own_cards(cluster, table, each))


def _number_names(cluster: Cluster, table: _Cards, each: Seated, *, wants_number: bool) -> None:
    """Assign a card to each new name: numbers first, so that they get the card of their index."""
    for name in each.task.cards:
        is_number = name.isdecimal() and int(name) < len(table.now)
        if name in table.index_of or is_number != wants_number:
            continue
        taken = set(table.index_of.values())
        unused = [card for card in range(len(table.now)) if card not in taken]
        if not unused:
            raise ScenarioError(
                f"{cluster.case.id}: {each.id}: {each.task.node} has {len(table.now)} cards,"
                f" so none is left to be {name}"
            )
        table.index_of[name] = int(name) if is_number else unused[0]


def _own_cards(cluster: Cluster, table: _Cards, each: Seated) -> list[int]:
    """Cards without other tasks: free ones, or for a nominated task those that become free."""
    free = table.later if each.state == "nominated" else table.now
    own = [card for card, milli in enumerate(free) if milli == MILLI_PER_GPU]
    if len(own) < each.demand.devices:
        n = each.demand.devices
        needs = "a card of its own" if n == 1 else f"{n} cards of its own"
        raise ScenarioError(
            f"{cluster.case.id}: {each.id}: needs {needs} on {each.task.node},"
            f" which has {len(own)} left"
        )
    return own[: each.demand.devices]


def _put(cluster: Cluster, table: _Cards, each: Seated, cards: list[int]) -> None:
    where = f"{cluster.case.id}: {each.id}"
    if len(set(cards)) != each.demand.devices:
        raise ScenarioError(
            f"{where}: names {len(set(cards))} cards and asks for {each.demand.devices}"
        )
    shares = card_shares(each.demand, table.node.gpu_memory_mib, cards)
    each.place = Place(each.state, table.node.name, shares)
    table.hold(each.place)
    free = table.later if each.state == "nominated" else table.now
    if any(share.milli > MILLI_PER_GPU or free[share.index] < 0 for share in shares):
        raise ScenarioError(f"{where}: its cards on {table.node.name} do not have that much free")

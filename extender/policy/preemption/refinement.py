"""One unit more instead of others: a way to a cheaper plan for a taker of several pods.

Its pods are seated one after the other, each where room costs least. So a unit that makes room for
several of them at once, or completes what others leave half free, may have looked too dear. Such
units are tried one by one on the finished plan: with one more stopped all those are spared that can
be, and that is kept if it costs less.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.policy.preemption.fill_back import Victims
from extender.policy.preemption.statement import Unit
from extender.policy.preemption.victim_sets import unit_at
from extender.policy.queues.tree import RESOURCES
from extender.state.model import Amounts

#: Plans of more victims, or for more pods, are left as they are.
_MOST_UNITS: Final = 16
#: Units that are tried for one plan, of those that might help, and gangs that are looked at.
_MOST_TRIES: Final = 8
_MOST_GANGS: Final = 64


def exchange(victims: Victims) -> None:
    """Make a plan that is settled cheaper where one unit more does it."""
    trial = victims.trial
    if 1 < len(trial.seats) <= _MOST_UNITS and 1 < len(trial.units) <= _MOST_UNITS:
        for p in islice(_Candidates(victims).find(), _MOST_TRIES):
            # With whom it goes depends on who of its workload stays since it was found.
            unit = unit_at(trial, victims.terms, p) if trial.herd.is_here[p] else None
            if unit is not None:
                _try_with(victims, unit)


def _try_with(victims: Victims, unit: Unit) -> None:
    trial = victims.trial
    mark, price = trial.checkpoint(), trial.price()
    trial.stop(unit)
    victims.spare_all_but(unit)
    if trial.price() >= price or not victims.may_keep():
        trial.rollback(mark)


@dataclass(slots=True)
class _Candidates:
    """Who might be stopped instead of others: gangs, and who is beside those who leave.

    `least` is the least of each resource that one of the taker's places has, `costs` what is lost
    on each node by those who leave it, the most first.
    """

    victims: Victims
    least: Amounts = field(init=False)
    costs: list[int] = field(init=False)

    def __post_init__(self) -> None:
        trial = self.victims.trial
        amounts = [placement.amounts for placement in trial.placements]
        gpu, cpu, memory = (min(each[r] for each in amounts) for r in RESOURCES)
        self.least = gpu, cpu, memory
        lost: dict[str, int] = {}
        for unit in trial.units.values():
            for node in {trial.herd.pods[p].node for p in unit.pods}:
                lost[node] = lost.get(node, 0) + unit.lost
        self.costs = sorted(lost.values(), reverse=True)

    def find(self) -> list[int]:
        """A pod of each unit that might save more than it loses, the cheapest first."""
        trial, known = self.victims.trial, set[frozenset[int]]()
        found = list[tuple[int, str, int]]()
        pods = trial.herd.pods
        asked = {*islice(self._gangs(), _MOST_GANGS), *self._beside()}
        # One pod may leave alone, and another of its workload only with that one.
        for p in sorted(asked, key=lambda p: pods[p].uid):
            unit = unit_at(trial, self.victims.terms, p)
            if unit is None or (together := frozenset(unit.pods)) in known:
                continue
            known.add(together)
            if unit.lost < self._most_saved(unit):
                found.append((unit.lost, pods[p].uid, p))
        return [p for _, _, p in sorted(found)]

    def _gangs(self) -> Iterator[int]:
        """A pod of every workload with several that costs less than the plan."""
        herd, total = self.victims.trial.herd, sum(self.costs)
        for w in herd.gangs():
            if herd.whole_lost[w] >= total:
                return
            yield from islice((p for p in herd.members[w] if herd.is_here[p]), 1)

    def _beside(self) -> Iterator[int]:
        """The pods on nodes that somebody leaves."""
        trial, herd = self.victims.trial, self.victims.trial.herd
        for ix in {trial.ix_of(herd.pods[p].node) for p in trial.leaving()}:
            yield from (p for p in range(herd.start[ix], herd.start[ix + 1]) if herd.is_here[p])

    def _most_saved(self, unit: Unit) -> int:
        """No more than this is saved with the unit gone."""
        herd = self.victims.trial.herd
        freed: dict[str, list[int]] = {}
        for p in unit.pods:
            freed.setdefault(herd.pods[p].node, []).append(p)
        n_places = sum(self._n_more(node, herd.amounts_of(pods)) for node, pods in freed.items())
        return sum(self.costs[:n_places])

    def _n_more(self, node: str, freed: Amounts) -> int:
        """How many more of the taker's pods the node could hold with so much freed on it."""
        trial = self.victims.trial
        later, ix = trial.session.sim.later, trial.ix_of(node)
        gpu = sum(max(0, milli) for milli in later.cards.free_of(ix))
        free = gpu, later.free_cpu_milli[ix], later.free_memory_mib[ix]
        asked = [r for r in RESOURCES if self.least[r] > 0]
        return min((max(0, free[r] + freed[r]) // self.least[r] for r in asked), default=0)

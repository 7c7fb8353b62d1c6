"""Decides whether a live pod is kept among the workloads or among the foreign pods.

The decision depends on its facts and its rows, which arrive in any order. What follows from both,
the pod's hold on its node and what the controller has to repair, is updated here.
"""

from extender.state.fleet.fleet import Fleet
from extender.state.fleet.foreign import is_foreign
from extender.state.nodes import RowIndex
from extender.state.pods.facts import PodFacts
from extender.state.upkeep.upkeep import Upkeep
from extender.state.workloads.collection import Workloads


class KeptPods:
    """The only way for pods into the workloads and out of them."""

    def __init__(self, rows: RowIndex, fleet: Fleet, workloads: Workloads, upkeep: Upkeep) -> None:
        self._rows = rows
        self._fleet = fleet
        self._workloads = workloads
        self._upkeep = upkeep

    def facts_of(self, uid: str) -> PodFacts | None:
        """The facts of the live pod, if it is kept in full."""
        return self._workloads.facts.get(uid) or self._fleet.foreign.facts.get(uid)

    def take(self, facts: PodFacts) -> None:
        """Keep the pod with the workloads, or as foreign if it holds cards without a row."""
        if is_foreign(facts, self._rows.held_of(facts.uid).get(facts.node)):
            self._workloads.drop_pod(facts.uid)
            self._fleet.set_foreign(facts)
        else:
            self._fleet.drop_foreign(facts.uid)
            self._workloads.set_pod(facts)
        self._place(facts.uid)

    def refresh_rows(self, uid: str) -> None:
        """The pod's rows have changed, which can make a foreign pod a managed one, or back."""
        facts = self.facts_of(uid)
        if facts is not None and facts.node:
            was_foreign = uid in self._fleet.foreign.facts
            if is_foreign(facts, self._rows.held_of(uid).get(facts.node)) != was_foreign:
                self.take(facts)
                return
        self._place(uid)

    def drop(self, uid: str) -> None:
        """Forget the pod; does nothing if it is not known."""
        facts = self.facts_of(uid)
        if facts is not None and facts.node:
            self._fleet.set_lost(facts.node, uid, ())
        self._fleet.set_hold(uid, None)
        self._fleet.drop_foreign(uid)
        self._workloads.drop_pod(uid)
        self._upkeep.refresh(uid)

    def validate(self) -> None:
        """Assert that every pod is in the index that its facts and rows call for."""
        ours, foreign = self._workloads.facts, self._fleet.foreign.facts
        assert ours.keys().isdisjoint(foreign)
        for uid, facts in {**ours, **foreign}.items():
            row = self._rows.held_of(uid).get(facts.node)
            assert is_foreign(facts, row) == (uid in foreign), uid
        places = {uid: self._workloads.place_of(uid)[0] for uid in ours}
        self._fleet.validate(places | {uid: facts.node for uid, facts in foreign.items()})

    def _place(self, uid: str) -> None:
        """Update what follows from the pod's facts and rows together."""
        facts = self.facts_of(uid)
        if facts is not None:
            node, is_managed = facts.node, uid in self._workloads.facts
            if is_managed:
                node, _ = self._workloads.place_of(uid)
                self._workloads.touch_pod(uid)
            hold = facts.hold_on(node, is_foreign=not is_managed) if node else None
            self._fleet.set_hold(uid, hold)
        self._upkeep.refresh(uid)
        if facts is not None and facts.node:
            self._fleet.set_lost(facts.node, uid, self._upkeep.lost_cards(uid))

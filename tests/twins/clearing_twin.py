"""The Python twin of `clearing.pyx`: the same search over lists of units."""

from array import array
from collections.abc import Sequence

from tests.twins.appraisal_twin import Price, Unit, price_of
from tests.twins.choice_twin import HOST, Choice, pods_of
from tests.twins.exchange_twin import improve


class Clearing(Choice):
    """As `clearing.Clearing`."""

    def choose(self, ix: int, out: "array[int]") -> int:
        """As `Clearing.choose`."""
        units = self.draft(ix)
        if units is None:
            return -1
        pods = pods_of(units)
        out[: len(pods)] = array("i", pods)
        return len(pods)

    def draft(self, ix: int) -> list[Unit] | None:
        """The units that leave node `ix`, none where it has room; None where nothing helps."""
        if self.fits(ix, []):
            return []
        if not self.node.takes(ix, self.node.left(ix, self.removable(ix))):
            return None
        found = self._cleared(ix, is_by_size=False) or self._cleared(ix, is_by_size=True)
        return improve(self, ix, found and self.trimmed(ix, found))

    def removable(self, ix: int) -> list[int]:
        """All pods of the node that may go, each asked alone."""
        return [p for p in self.node.pods_on(ix) if self.appraisal.unit(p, []) is not None]

    def _cleared(self, ix: int, *, is_by_size: bool) -> list[Unit] | None:
        """Units after which one more fits, or None."""
        units = self._cards_cleared(ix, is_by_size=is_by_size)
        while units is not None and self.node.lacks(self.left(ix, units)):
            unit = self.cheapest(ix, HOST, units, is_by_size=is_by_size)
            units = None if unit is None else [*units, unit]
        return units

    def _cards_cleared(self, ix: int, *, is_by_size: bool) -> list[Unit] | None:
        """Units after which there are cards enough: card by card, by what each cost when it was
        last asked, and asked again before it is believed."""
        need, units = self.node.need(ix), list[Unit]()
        if not self.node.has_cards(ix, self.left(ix, [])) and need > 1000:
            return None
        known: dict[int, Price] = {}
        for card, milli in enumerate(self.left(ix, []).cards):
            alone = self._card_cleared(ix, card, [], is_by_size=is_by_size)
            if milli < need and alone is not None:
                known[card] = price_of(alone)
        while not self.node.has_cards(ix, left := self.left(ix, units)):
            shut = [card for card in known if left.cards[card] < need]
            if not shut:
                return None
            card = min(shut, key=lambda card: known[card])
            more = self._card_cleared(ix, card, units, is_by_size=is_by_size)
            if more is None:
                del known[card]
                continue
            if price_of(more) <= known[card]:
                units = [*units, *more]
            known[card] = price_of(more)
        return units

    def _card_cleared(
        self, ix: int, card: int, before: Sequence[Unit], *, is_by_size: bool
    ) -> list[Unit] | None:
        """The units that leave after those before until the card is free enough, none in vain; or
        None."""
        more: list[Unit] = []
        while not self.frees(ix, card, [*before, *more]):
            unit = self.cheapest(ix, card, [*before, *more], is_by_size=is_by_size)
            if unit is None:
                return None
            more.append(unit)
        return self.trimmed(ix, [*before, *more], before, card)[len(before) :]

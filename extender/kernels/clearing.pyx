# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which pods leave a node so that one more fits, the cheapest found. Twin: `clearing_twin`.

Cards are freed one by one, the cheapest first, then pods leave for what else the node lacks; what
proves needless stays after all, and then one unit more is tried instead of others. Time: the node's
cards times its pods, and its pods once more for each that is chosen.
"""

from extender.kernels.cards cimport WHOLE
from extender.kernels.choice cimport Choice
from extender.kernels.costs cimport FOLLOWER, Cost, Entry, is_less
from extender.kernels.exchange cimport Exchange


cdef class Clearing:
    def __cinit__(self, nodes, herd, terms, demand, extra_need, extra_free, extra_held):
        self.choice = Choice(nodes, herd, terms, demand, extra_need, extra_free, extra_held)
        self.exchange = Exchange(self.choice)

    def choose(self, int ix, int[::1] out):
        """How many pods leave node `ix`; their indices are in out. -1 where nothing helps."""
        cdef int at, n = -1
        if self.draft(ix):
            n = self.choice.n_entries
            for at in range(n):
                out[at] = self.choice.entries[at].pod
        self.choice.undo(0)
        return n

    cdef bint draft(self, int ix) noexcept nogil:
        """Look at the node and choose; undo it before the next."""
        cdef bint is_found
        self.choice.node.load(ix)
        if self.choice.node.fits():
            return True
        if not self.could_fit():
            return False
        # Order matters where a queue may give only so much: by size is the second try.
        is_found = self.clear_node(False) or self.clear_node(True)
        if is_found:
            self.choice.trim(0, -1)
        return self.exchange.improve(is_found)

    cdef bint could_fit(self) noexcept nogil:
        """Whether it fits with everything gone that may go: the cheap and exact no."""
        cdef bint is_found
        self.leave_all(1)
        is_found = self.choice.node.fits()
        self.leave_all(-1)
        return is_found

    cdef void leave_all(self, int sign) noexcept nogil:
        """Everything that may go is gone (1), or there again (-1)."""
        cdef int p
        cdef bint is_meant
        cdef Entry entry
        for p in range(self.choice.node.first, self.choice.node.last):
            is_meant = self.choice.node.is_gone[p - self.choice.node.first]
            if sign > 0:
                is_meant = self.choice.terms.appraise(p, &entry)
            if is_meant:
                self.choice.node.leave(p, sign)

    cdef bint clear_node(self, bint is_by_size) noexcept nogil:
        """Choose until one more fits; nothing is chosen where that fails."""
        cdef int p
        if not self.clear_cards(is_by_size):
            self.choice.undo(0)
            return False
        while not self.choice.node.has_host():
            p = self.choice.cheapest(-1, is_by_size)
            if p < 0:
                self.choice.undo(0)
                return False
            self.choice.take(p)
        return True

    cdef bint clear_cards(self, bint is_by_size) noexcept nogil:
        """Free card after card, the cheapest first, until there are enough."""
        cdef int c, best, n_before, need = self.choice.node.need
        cdef bint is_open[64]
        cdef Cost cost[64]
        cdef Cost now
        if self.choice.node.has_cards():
            return True
        if need > WHOLE:
            return False
        for c in range(self.choice.node.cards):
            is_open[c] = self.choice.node.card_free[c] < need and self.clear_card(c, is_by_size)
            cost[c] = self.choice.total(0)
            self.choice.undo(0)
        while not self.choice.node.has_cards():
            best = -1
            for c in range(self.choice.node.cards):
                if is_open[c] and self.choice.node.card_free[c] < need and (
                    best < 0 or is_less(&cost[c], &cost[best])
                ):
                    best = c
            if best < 0:
                return False
            # What is chosen already may have made the card dearer, or closed it.
            n_before = self.choice.n_entries
            is_open[best] = self.clear_card(best, is_by_size)
            now = self.choice.total(n_before)
            if not is_open[best] or is_less(&cost[best], &now):
                self.choice.undo(n_before)
            cost[best] = now
        return True

    cdef bint clear_card(self, int card, bint is_by_size) noexcept nogil:
        """Choose until the card is free enough, and nobody in vain."""
        cdef int p, at, first = self.choice.n_entries
        while self.choice.node.card_free[card] < self.choice.node.need:
            p = self.choice.cheapest(card, is_by_size)
            if p < 0:
                return False
            self.choice.take(p)
        if self.choice.n_entries - first > 1:
            self.choice.trim(first, card)
            # Some may prove needless for the node still.
            for at in range(first, self.choice.n_entries):
                self.choice.entries[at].is_tested = self.choice.entries[at].kind == FOLLOWER
        return True

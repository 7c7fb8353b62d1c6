# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Chooses victims on one node so that one more pod fits there, at low cost.

Cards are freed one after the other, always the one with the lowest cost per freed card. Then
victims are chosen for the other resources that are short, the cheapest first. Finally needless
victims are kept, the most expensive first. If there are several victims, or a queue ends below its
floor, the same is tried with the largest pods first (by GPUs, or by their part of what is short),
and the cheaper result is used, since one large victim may cost less than several cheap ones. Time:
devices times cards times pods. The twin of `node_victims` covers these rules too.
"""

from libc.stdlib cimport calloc, free as release
from libc.string cimport memcpy

from extender.kernels.capacity cimport Capacity
from extender.kernels.costs cimport (
    FOLLOWER, SINGLE, WHOLE_WORKLOAD, Cost, Victim, add_cost, is_less, no_cost, per_card,
)
from extender.kernels.terms cimport Terms


cdef class Victims:
    """The victims on the loaded node; call `undo(0)` before loading another."""

    def __cinit__(self, Capacity node, Terms terms, int most_pods):
        self.node, self.terms = node, terms
        self.chosen = <Victim*>calloc(most_pods + 1, sizeof(Victim))
        self.cheapest_first = <Victim*>calloc(most_pods + 1, sizeof(Victim))
        if self.chosen == NULL or self.cheapest_first == NULL:
            raise MemoryError(f"no memory for {most_pods} victims")

    def __dealloc__(self):
        release(self.chosen)
        release(self.cheapest_first)

    cdef bint choose(self, int ix) noexcept nogil:
        """Choose victims on node `ix`; False, with no victims, if none make the pod fit."""
        cdef int at, n
        cdef Cost cost, by_size
        self.node.load(ix)
        if not self.could_fit():
            return False
        # Else try by size: after small victims, a queue may be unable to give a large one.
        if not self.clear(False):
            return self.clear(True)
        n, cost = self.n, self.cost_from(0)
        if n < 2 and not cost.is_below:
            return True
        memcpy(self.cheapest_first, self.chosen, n * sizeof(Victim))
        self.undo(0)
        if self.clear(True):
            by_size = self.cost_from(0)
            if is_less(&by_size, &cost):
                return True
            self.undo(0)
        for at in range(n):
            self.add(&self.cheapest_first[at])
        return True

    cdef int n_fitting(self, int ix, int most) noexcept nogil:
        """How many pods fit on node `ix` without its possible victims, at most `most`."""
        cdef int n
        self.node.load(ix)
        self.remove_all(1)
        n = self.node.n_fitting(most)
        self.remove_all(-1)
        return n

    cdef bint clear(self, bint is_by_size) noexcept nogil:
        """Choose victims until the pod fits, and keep needless ones; no victims if that fails."""
        self.is_by_size = is_by_size
        if self.free_cards() and self.free_host():
            self.keep_needless(0, -1)
            return True
        self.undo(0)
        return False

    cdef bint could_fit(self) noexcept nogil:
        """Whether the pod fits without all possible victims: a cheap and exact no."""
        cdef bint is_found
        self.remove_all(1)
        is_found = self.node.has_cards() and self.node.has_host()
        self.remove_all(-1)
        return is_found

    cdef void remove_all(self, int sign) noexcept nogil:
        """Remove all possible victims from the node (1), or add them again (-1)."""
        cdef int p
        cdef bint may_go
        cdef Victim victim
        for p in range(self.node.first, self.node.last):
            may_go = self.node.is_gone[p - self.node.first]
            if sign > 0:
                may_go = self.terms.appraise(p, &victim)
            if may_go:
                self.node.leave(p, sign)

    cdef bint free_cards(self) noexcept nogil:
        """Free the card with the lowest cost per freed card, until there are enough."""
        cdef int c, best, n_before, n_free, n, most = 0
        cdef Cost cost, least = no_cost()
        while not self.node.has_cards():
            best, n_before, n_free = -1, self.n, self.node.n_free_cards()
            for c in range(self.node.cards):
                if self.node.card_free[c] < self.node.need and self.free_card(c):
                    cost = self.cost_from(n_before)
                    n = self.node.n_free_cards() - n_free
                    per_card(&cost, n)
                    n = n if self.is_by_size else 0
                    if best < 0 or n > most or (n == most and is_less(&cost, &least)):
                        best, least, most = c, cost, n
                self.undo(n_before)
            if best < 0:
                return False
            self.free_card(best)
        return True

    cdef bint free_card(self, int card) noexcept nogil:
        """Choose victims until the card has enough free, and keep needless ones."""
        cdef int first = self.n
        while self.node.card_free[card] < self.node.need:
            if not self.take_cheapest(card):
                return False
        self.keep_needless(first, card)
        return True

    cdef bint free_host(self) noexcept nogil:
        """Choose victims until everything but cards is sufficient."""
        while not self.node.has_host():
            if not self.take_cheapest(-1):
                return False
        return True

    cdef bint take_cheapest(self, int card) noexcept nogil:
        """Choose the next victim, the first of equals, among pods that hold a part of the card or,
        for -1, of another resource that is short. If its workload is evicted whole, the other pods
        of the workload are victims too."""
        cdef int p, part, best = -1
        cdef long long size, most = 0
        cdef Victim victim, found
        for p in range(self.node.first, self.node.last):
            part = 0 if self.node.is_gone[p - self.node.first] else self.node.part(p, card)
            if part == 0 or not self.terms.appraise(p, &victim):
                continue
            size = 0
            if self.is_by_size:
                size = self.terms.amounts[3 * p] if card >= 0 else part
            if best < 0 or size > most or (size == most and is_less(&victim.cost, &found.cost)):
                best, found, most = p, victim, size
        if best < 0:
            return False
        self.add(&found)
        if found.kind == WHOLE_WORKLOAD:
            found.kind, found.cost = FOLLOWER, no_cost()
            found.cost.count = 1
            for p in range(self.node.first, self.node.last):
                if self.terms.owner[p] == self.terms.owner[best] and self.terms.is_here[p] and (
                    not self.node.is_gone[p - self.node.first]
                ):
                    found.pod = p
                    self.add(&found)
        return True

    cdef void add(self, const Victim* victim) noexcept nogil:
        self.chosen[self.n] = victim[0]
        self.n += 1
        self.change(victim, 1)

    cdef void change(self, const Victim* victim, int sign) noexcept nogil:
        """Remove the victim's pod and charge its queue (1), or undo both (-1)."""
        self.node.leave(victim.pod, sign)
        self.terms.give(victim, sign)

    cdef void undo(self, int n_kept) noexcept nogil:
        """Drop all victims but the first `n_kept`."""
        while self.n > n_kept:
            self.n -= 1
            self.change(&self.chosen[self.n], -1)

    cdef Cost cost_from(self, int first) noexcept nogil:
        """The total cost of the victims from `first` on."""
        cdef int at
        cdef Cost total = no_cost()
        for at in range(first, self.n):
            add_cost(&total, &self.chosen[at].cost)
        return total

    cdef void keep_needless(self, int first, int card) noexcept nogil:
        """Keep each victim from `first` on that is not needed to free the card or, for -1, to fit
        the pod; the most expensive first."""
        cdef int at, last, each, n_before = self.n
        for at in range(first, self.n):
            self.chosen[at].is_tested = self.chosen[at].kind == FOLLOWER
        while True:
            at = self.next_to_test(first)
            if at < 0:
                if self.n < n_before:
                    self.appraise_again(first)
                return
            self.chosen[at].is_tested = True
            last = at + 1
            while last < self.n and self.chosen[last].kind == FOLLOWER:
                last += 1
            for each in range(at, last):
                self.change(&self.chosen[each], -1)
            if (card >= 0 and self.node.card_free[card] >= self.node.need) or (
                card < 0 and self.node.has_cards() and self.node.has_host()
            ):
                for each in range(last, self.n):
                    self.chosen[each - last + at] = self.chosen[each]
                self.n -= last - at
            else:
                for each in range(at, last):
                    self.change(&self.chosen[each], 1)

    cdef void appraise_again(self, int first) noexcept nogil:
        """Compute the costs from `first` on again: with fewer victims their queues hold more."""
        cdef int at, kind
        for at in range(first, self.n):
            self.change(&self.chosen[at], -1)
        for at in range(first, self.n):
            kind = self.chosen[at].kind
            if kind != FOLLOWER:
                self.terms.appraise(self.chosen[at].pod, &self.chosen[at])
                self.chosen[at].kind = kind
            self.change(&self.chosen[at], 1)

    cdef int next_to_test(self, int first) noexcept nogil:
        """The victim to test next, or -1. Surplus pods of a workload evicted whole stay victims."""
        cdef int at, other, best = -1
        cdef bint is_held
        for at in range(first, self.n):
            is_held = self.chosen[at].is_tested
            for other in range(self.n if self.chosen[at].kind == SINGLE else 0):
                is_held |= self.chosen[other].kind == WHOLE_WORKLOAD and (
                    self.terms.owner[self.chosen[other].pod]
                    == self.terms.owner[self.chosen[at].pod]
                )
            if not is_held and (
                best < 0 or is_less(&self.chosen[best].cost, &self.chosen[at].cost)
            ):
                best = at
        return best

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which pods leave a node so that one more pod fits, at the least cost. Twin: `node_victims_twin`.

The cards of a node are freed one after the other, each time the one that costs least per card; then
pods leave for what else the node lacks, the cheapest first. Finally the pods that are not needed
are kept, the most expensive first. Time per node: devices times cards times pods.

`NodeVictims` is bound to the arrays of `extender.policy.preemption.candidates` and `eligibility`
and of the node table. It reads them anew in every call and changes none.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.capacity cimport Capacity
from extender.kernels.costs cimport (
    FOLLOWER, SINGLE, WHOLE_WORKLOAD, Cost, Price, Victim, add_cost, is_cheaper, is_less, no_cost,
    per_card, price_of,
)
from extender.kernels.terms cimport Terms

#: `high` of a node on which no eviction helps.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class NodeVictims:
    cdef Capacity node
    cdef Terms terms
    cdef const int[::1] node_ixs
    # By position in `node_ixs`, as they were computed last.
    cdef Price* prices
    # The position of a node plus 1; 0 where it is none of `node_ixs`.
    cdef int* position
    # The victims on the node that is loaded; followers of a whole workload come right after it.
    cdef Victim* victims
    cdef int n_victims
    # Whether the largest pod goes first instead of the cheapest.
    cdef bint is_by_size

    def __cinit__(
        self, nodes, node_ixs, pods, terms, demand, counted_need, counted_free, counted_held
    ):
        cdef int at
        self.node = Capacity(nodes, pods, demand, counted_need, counted_free, counted_held)
        self.terms = Terms(pods, terms)
        self.node_ixs = node_ixs
        self.prices = <Price*>calloc(self.node_ixs.shape[0] + 1, sizeof(Price))
        self.position = <int*>calloc(len(nodes) + 1, sizeof(int))
        self.victims = <Victim*>calloc(pods.most_pods + 1, sizeof(Victim))
        if self.prices == NULL or self.position == NULL or self.victims == NULL:
            raise MemoryError(f"no memory for the victims on {self.node_ixs.shape[0]} nodes")
        for at in range(self.node_ixs.shape[0]):
            self.position[self.node_ixs[at]] = at + 1

    def __dealloc__(self):
        release(self.prices)
        release(self.position)
        release(self.victims)

    def update(self, const int[::1] nodes):
        """Compute the prices of these nodes again; nodes that are not in `node_ixs` are ignored."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(nodes.shape[0]):
                if self.position[nodes[each]] > 0:
                    self.choose_on(nodes[each])
                    self.undo(0)

    def choose(self, int ix, int[::1] out):
        """Set out to the victims on node `ix` and return their number; -1 where none help. The
        node's price is up to date afterwards."""
        cdef int at, n = -1
        if self.choose_on(ix):
            n = self.n_victims
            for at in range(n):
                out[at] = self.victims[at].pod
        self.undo(0)
        return n

    def price(self, int at):
        """The price at a position, as (high, moved, low): the smaller is the cheaper."""
        return self.prices[at].high, self.prices[at].moved, self.prices[at].low

    def exclude(self, int at):
        """Make the position impossible until its price is computed again."""
        self.prices[at].high = NEVER

    def cheapest(self):
        """The first position of the least price, or -1 where all are impossible."""
        cdef int at, best = -1
        with nogil:
            for at in range(<int>self.node_ixs.shape[0]):
                if self.prices[at].high != NEVER and (
                    best < 0 or is_cheaper(&self.prices[at], &self.prices[best])
                ):
                    best = at
        return best

    def capacity(self, int most):
        """How many pods fit on all nodes without the pods that may leave, or `most`."""
        cdef Py_ssize_t each
        cdef long long total = 0
        with nogil:
            for each in range(self.node_ixs.shape[0]):
                self.node.load(self.node_ixs[each])
                self.leave_all(1)
                total += self.node.n_fitting(most)
                self.leave_all(-1)
                if total >= most:
                    break
        return min(total, most)

    cdef bint choose_on(self, int ix) noexcept nogil:
        """Choose victims on node `ix` and set its price; the caller undoes them."""
        cdef int at = self.position[ix] - 1
        cdef bint is_possible
        cdef Cost cost
        self.node.load(ix)
        # By size is the second try: small pods may leave a queue too little to give a large one.
        is_possible = self.could_fit() and (self.clear(False) or self.clear(True))
        if is_possible:
            self.keep_needless(0, -1)
            cost = self.cost_from(0)
        if at >= 0:
            self.prices[at] = price_of(&cost) if is_possible else Price(NEVER, 0, 0)
        return is_possible

    cdef bint clear(self, bint is_by_size) noexcept nogil:
        """Choose victims until the pod fits; none where that fails."""
        self.is_by_size = is_by_size
        if self.free_cards() and self.free_host():
            return True
        self.undo(0)
        return False

    cdef bint could_fit(self) noexcept nogil:
        """Whether the pod fits without all pods that may leave: a cheap and exact no."""
        cdef bint is_found
        self.leave_all(1)
        is_found = self.node.has_cards() and self.node.has_host()
        self.leave_all(-1)
        return is_found

    cdef void leave_all(self, int sign) noexcept nogil:
        """All pods that may leave are gone (1), or back (-1)."""
        cdef int p
        cdef bint is_meant
        cdef Victim victim
        for p in range(self.node.first, self.node.last):
            is_meant = self.node.is_gone[p - self.node.first]
            if sign > 0:
                is_meant = self.terms.appraise(p, &victim)
            if is_meant:
                self.node.leave(p, sign)

    cdef bint free_cards(self) noexcept nogil:
        """Free the card that costs least per card that comes free, until there are enough."""
        cdef int c, best, n_before, n_free, n, most = 0
        cdef Cost cost, least = no_cost()
        while not self.node.has_cards():
            best, n_before, n_free = -1, self.n_victims, self.node.n_free_cards()
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
        """Choose victims until the card has enough free, none of them needlessly."""
        cdef int first = self.n_victims
        while self.node.card_free[card] < self.node.need:
            if not self.take_cheapest(card):
                return False
        self.keep_needless(first, card)
        return True

    cdef bint free_host(self) noexcept nogil:
        """Choose victims until there is enough of everything but cards."""
        while not self.node.has_host():
            if not self.take_cheapest(-1):
                return False
        return True

    cdef bint take_cheapest(self, int card) noexcept nogil:
        """Choose the pod to go next, of equal ones the first, that holds any of the card or (-1) of
        what the host lacks; with it leave the other pods of a workload that leaves whole."""
        cdef int p, best = -1
        cdef long long size, most = 0
        cdef Victim victim, found
        for p in range(self.node.first, self.node.last):
            if self.node.is_gone[p - self.node.first] or not self.node.helps(p, card):
                continue
            size = self.terms.amounts[3 * p] if self.is_by_size else 0
            if self.terms.appraise(p, &victim) and (
                best < 0 or size > most or (size == most and is_less(&victim.cost, &found.cost))
            ):
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
        self.victims[self.n_victims] = victim[0]
        self.n_victims += 1
        self.change(victim, 1)

    cdef void change(self, const Victim* victim, int sign) noexcept nogil:
        """The pod leaves and its queue gives (1); or neither (-1)."""
        self.node.leave(victim.pod, sign)
        self.terms.give(victim, sign)

    cdef void undo(self, int n_kept) noexcept nogil:
        """Drop all victims but the first `n_kept`."""
        while self.n_victims > n_kept:
            self.n_victims -= 1
            self.change(&self.victims[self.n_victims], -1)

    cdef Cost cost_from(self, int first) noexcept nogil:
        """What the victims from `first` on cost together."""
        cdef int at
        cdef Cost total = no_cost()
        for at in range(first, self.n_victims):
            add_cost(&total, &self.victims[at].cost)
        return total

    cdef void keep_needless(self, int first, int card) noexcept nogil:
        """Keep each victim from `first` on without which the card, or (-1) the pod, still fits; the
        most expensive first."""
        cdef int at, last, each
        for at in range(first, self.n_victims):
            self.victims[at].is_tested = self.victims[at].kind == FOLLOWER
        while True:
            at = self.dearest_untested(first)
            if at < 0:
                return
            self.victims[at].is_tested = True
            last = at + 1
            while last < self.n_victims and self.victims[last].kind == FOLLOWER:
                last += 1
            for each in range(at, last):
                self.change(&self.victims[each], -1)
            if (card >= 0 and self.node.card_free[card] >= self.node.need) or (
                card < 0 and self.node.has_cards() and self.node.has_host()
            ):
                for each in range(last, self.n_victims):
                    self.victims[each - last + at] = self.victims[each]
                self.n_victims -= last - at
            else:
                for each in range(at, last):
                    self.change(&self.victims[each], 1)

    cdef int dearest_untested(self, int first) noexcept nogil:
        """The victim to keep next, or -1; surplus of one that leaves whole stays a victim."""
        cdef int at, other, best = -1
        cdef bint is_held
        for at in range(first, self.n_victims):
            is_held = self.victims[at].is_tested
            for other in range(self.n_victims if self.victims[at].kind == SINGLE else 0):
                is_held |= self.victims[other].kind == WHOLE_WORKLOAD and (
                    self.terms.owner[self.victims[other].pod]
                    == self.terms.owner[self.victims[at].pod]
                )
            if not is_held and (
                best < 0 or is_less(&self.victims[best].cost, &self.victims[at].cost)
            ):
                best = at
        return best

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What room for one more pod costs on many nodes, and who leaves for it. Twin: `victims_twin`.

A `Room` is bound to some nodes of a table, a herd (pods that may be told to leave), the terms on
which they may, and one pod's demand (`extender.policy.preemption.candidates` and `eligibility`
describe the arrays); it reads them anew in every call and changes none. Costs compare as in
`costs.pxd`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.clearing cimport Clearing
from extender.kernels.costs cimport Cost, Price, high_of, low_of, moved_of

#: `high` of a node on which nothing helps.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class Room:
    cdef Clearing clearing
    # What room costs on each of `candidates`, as it was when it was last asked for.
    cdef const int[::1] candidates
    cdef Price* prices
    # A tournament: winners[n] is the position of the least cost below inner node n, whose children
    # are 2 n and 2 n + 1, or -1; the leaf of a position stands at n_leaves plus that.
    cdef int* winners
    cdef int n_leaves
    # Where a node is among the candidates, plus 1; 0 where it is none of them.
    cdef int* position

    def __cinit__(self, nodes, candidates, herd, terms, demand, extra_need, extra_free, extra_held):
        cdef int at
        self.clearing = Clearing(nodes, herd, terms, demand, extra_need, extra_free, extra_held)
        self.candidates = candidates
        self.prices = <Price*>calloc(self.candidates.shape[0] + 1, sizeof(Price))
        self.position = <int*>calloc(len(nodes) + 1, sizeof(int))
        self.n_leaves = 1
        while self.n_leaves < self.candidates.shape[0]:
            self.n_leaves *= 2
        self.winners = <int*>calloc(self.n_leaves, sizeof(int))
        if self.prices == NULL or self.position == NULL or self.winners == NULL:
            raise MemoryError(f"no memory for the prices of {self.candidates.shape[0]} nodes")
        for at in range(self.candidates.shape[0]):
            self.position[self.candidates[at]] = at + 1

    def __dealloc__(self):
        release(self.prices)
        release(self.position)
        release(self.winners)

    def update(self, const int[::1] nodes):
        """Work out again what room costs on these nodes, as far as they are candidates."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(nodes.shape[0]):
                if self.position[nodes[each]] > 0:
                    self.set_price(self.position[nodes[each]] - 1, NULL)
                    self.play(self.position[nodes[each]] - 1)

    def update_all(self):
        """The same everywhere."""
        cdef int at
        with nogil:
            for at in range(<int>self.candidates.shape[0]):
                self.set_price(at, NULL)
            for at in range(self.n_leaves - 1, 0, -1):
                self.winners[at] = self.better(self.winner(2 * at), self.winner(2 * at + 1))

    cdef void play(self, int at) noexcept nogil:
        """The price at this position has changed."""
        cdef int node = (self.n_leaves + at) // 2
        while node > 0:
            self.winners[node] = self.better(self.winner(2 * node), self.winner(2 * node + 1))
            node //= 2

    cdef int winner(self, int node) noexcept nogil:
        cdef int at = node - self.n_leaves
        if at < 0:
            return self.winners[node]
        return at if at < self.candidates.shape[0] else -1

    cdef int better(self, int one, int other) noexcept nogil:
        """The position of the lower price, of equal ones the first; -1: there is none."""
        if other < 0:
            return one
        if self.prices[other].high != self.prices[one].high:
            return other if self.prices[other].high < self.prices[one].high else one
        if self.prices[other].moved != self.prices[one].moved:
            return other if self.prices[other].moved < self.prices[one].moved else one
        return other if self.prices[other].low < self.prices[one].low else one

    cdef int set_price(self, int at, int* out) noexcept nogil:
        """Who leaves goes to out, if there is one; returns how many."""
        cdef Cost total
        cdef int each, n = 0
        self.prices[at].high = NEVER
        if self.clearing.draft(self.candidates[at]):
            n = self.clearing.choice.n_entries
            for each in range(n if out != NULL else 0):
                out[each] = self.clearing.choice.entries[each].pod
            total = self.clearing.choice.total(0)
            self.prices[at].high = high_of(&total)
            self.prices[at].moved = moved_of(&total)
            self.prices[at].low = low_of(&total)
        self.clearing.choice.undo(0)
        return n

    def confirm(self, int at, int[::1] out):
        """`choose` at a position where it is possible; -1 if that has another price by now."""
        cdef Price known = self.prices[at]
        cdef int n = self.set_price(at, &out[0])
        self.play(at)
        if (
            self.prices[at].high != known.high or self.prices[at].moved != known.moved
            or self.prices[at].low != known.low
        ):
            return -1
        return n

    def price(self, int at):
        """What it costs there, as (high, moved, low): the smaller is the cheaper."""
        return self.prices[at].high, self.prices[at].moved, self.prices[at].low

    def exclude(self, int at):
        """It is impossible there until it is worked out again."""
        self.prices[at].high = NEVER
        self.play(at)

    def cheapest(self):
        """The first position of the least cost, or -1 where it is impossible everywhere."""
        cdef int at = self.winner(1)
        return -1 if at < 0 or self.prices[at].high == NEVER else at

    def choose(self, int ix, int[::1] out):
        """How many pods leave node `ix`; their indices are in out. -1 where nothing helps."""
        return self.clearing.choose(ix, out)

    def capacity(self, int most):
        """How many pods fit on all candidates with everything gone that may go, or `most`."""
        cdef Py_ssize_t each
        cdef long long total = 0
        with nogil:
            for each in range(self.candidates.shape[0]):
                self.clearing.choice.node.load(self.candidates[each])
                self.clearing.leave_all(1)
                total += self.clearing.choice.node.n_fitting(most)
                self.clearing.leave_all(-1)
                if total >= most:
                    break
        return min(total, most)

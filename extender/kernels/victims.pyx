# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What room for one more pod costs on many nodes, and who leaves for it. Twin: `victims_twin`.

A `Room` is bound to some nodes of a table, a herd (pods that may be told to leave), the terms on
which they may, and one pod's demand (`extender.policy.herd` and `terms` describe the arrays); it
reads them anew in every call and changes none. Costs compare as in `costs.pxd`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.clearing cimport Clearing
from extender.kernels.costs cimport Cost, Price, high_of, low_of

#: `high` of a node on which nothing helps.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class Room:
    cdef Clearing clearing
    # What room costs on each of `candidates`, as it was when it was last asked for.
    cdef const int[::1] candidates
    cdef Price* prices

    def __cinit__(self, nodes, candidates, herd, terms, demand, extra_need, extra_free, extra_held):
        self.clearing = Clearing(nodes, herd, terms, demand, extra_need, extra_free, extra_held)
        self.candidates = candidates
        self.prices = <Price*>calloc(self.candidates.shape[0] + 1, sizeof(Price))
        if self.prices == NULL:
            raise MemoryError(f"no memory for the prices of {self.candidates.shape[0]} nodes")

    def __dealloc__(self):
        release(self.prices)

    def update(self, const int[::1] at):
        """Work out again what room costs at these positions in `candidates`."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(at.shape[0]):
                self.set_price(at[each])

    def update_all(self):
        """The same everywhere."""
        cdef int at
        with nogil:
            for at in range(<int>self.candidates.shape[0]):
                self.set_price(at)

    cdef void set_price(self, int at) noexcept nogil:
        cdef Cost total
        self.prices[at].high = NEVER
        if self.clearing.draft(self.candidates[at]):
            total = self.clearing.choice.total(0)
            self.prices[at].high = high_of(&total)
            self.prices[at].moved = total.moved
            self.prices[at].low = low_of(&total)
        self.clearing.choice.undo(0)

    def price(self, int at):
        """What it costs there, as (high, moved, low): the smaller is the cheaper."""
        return self.prices[at].high, self.prices[at].moved, self.prices[at].low

    def exclude(self, int at):
        """It is impossible there until it is worked out again."""
        self.prices[at].high = NEVER

    def cheapest(self):
        """The first position of the least cost, or -1 where it is impossible everywhere."""
        cdef Py_ssize_t at, best = -1
        cdef long long most = NEVER
        for at in range(self.candidates.shape[0]):
            if self.prices[at].high > most or self.prices[at].high == NEVER:
                continue
            if best < 0 or self.prices[at].high < most or (
                self.prices[at].moved < self.prices[best].moved
            ) or (
                self.prices[at].moved == self.prices[best].moved
                and self.prices[at].low < self.prices[best].low
            ):
                best = at
                most = self.prices[at].high
        return best

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

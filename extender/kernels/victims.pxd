"""The victims on one node, as `node_victims` uses them."""

from extender.kernels.capacity cimport Capacity
from extender.kernels.costs cimport Cost, Victim
from extender.kernels.terms cimport Terms


cdef class Victims:
    cdef Capacity node
    cdef Terms terms
    # The followers of a WHOLE_WORKLOAD victim come right after it.
    cdef Victim* chosen
    cdef Victim* cheapest_first
    cdef int n
    # Whether the largest pod is chosen first instead of the cheapest.
    cdef bint is_by_size

    cdef bint choose(self, int ix) noexcept nogil
    cdef int n_fitting(self, int ix, int most) noexcept nogil
    cdef Cost cost_from(self, int first) noexcept nogil
    cdef void undo(self, int n_kept) noexcept nogil
    cdef bint clear(self, bint is_by_size) noexcept nogil
    cdef bint could_fit(self) noexcept nogil
    cdef void remove_all(self, int sign) noexcept nogil
    cdef bint free_cards(self) noexcept nogil
    cdef bint free_card(self, int card) noexcept nogil
    cdef bint free_host(self) noexcept nogil
    cdef bint take_cheapest(self, int card) noexcept nogil
    cdef void add(self, const Victim* victim) noexcept nogil
    cdef void change(self, const Victim* victim, int sign) noexcept nogil
    cdef void keep_needless(self, int first, int card) noexcept nogil
    cdef void appraise_again(self, int first) noexcept nogil
    cdef int next_to_test(self, int first) noexcept nogil

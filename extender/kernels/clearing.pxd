"""Which pods leave a node so that one more fits: see `clearing.pyx`."""

from extender.kernels.choice cimport Choice
from extender.kernels.costs cimport Entry


cdef class Clearing:
    cdef Choice choice
    # The best choice so far, while single units are tried.
    cdef Entry* saved

    cdef bint draft(self, int ix) noexcept nogil
    cdef bint could_fit(self) noexcept nogil
    cdef void leave_all(self, int sign) noexcept nogil
    cdef bint clear_node(self, bint is_by_size) noexcept nogil
    cdef bint clear_cards(self, bint is_by_size) noexcept nogil
    cdef bint clear_card(self, int card, bint is_by_size) noexcept nogil
    cdef bint try_alone(self, bint is_found) noexcept nogil

"""Which pods leave a node so that one more fits: see `clearing.pyx`."""

from extender.kernels.choice cimport Choice
from extender.kernels.exchange cimport Exchange


cdef class Clearing:
    cdef Choice choice
    cdef Exchange exchange

    cdef bint draft(self, int ix) noexcept nogil
    cdef bint could_fit(self) noexcept nogil
    cdef void leave_all(self, int sign) noexcept nogil
    cdef bint clear_node(self, bint is_by_size) noexcept nogil
    cdef bint clear_cards(self, bint is_by_size) noexcept nogil
    cdef bint clear_card(self, int card, bint is_by_size) noexcept nogil

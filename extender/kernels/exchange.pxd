"""One unit more that leaves a node, and others less: see `exchange.pyx`."""

from extender.kernels.choice cimport Choice
from extender.kernels.costs cimport Cost, Entry


cdef class Exchange:
    cdef Choice choice
    # The best choice so far, and what it costs.
    cdef Entry* best
    cdef int n_best
    cdef Cost cost

    cdef bint improve(self, bint is_found) noexcept nogil
    cdef void save(self) noexcept nogil
    cdef bint could_help(self, const Entry* entry) noexcept nogil
    cdef void choose_with(self, int p) noexcept nogil

"""The pods chosen to leave one node: see `choice.pyx`."""

from extender.kernels.appraisal cimport Appraisal
from extender.kernels.costs cimport Cost, Entry
from extender.kernels.vacancy cimport Vacancy


cdef class Choice:
    cdef Vacancy node
    cdef Appraisal terms
    # Those chosen, in order; the followers of a core come right after it.
    cdef Entry* entries
    cdef int n_entries, most_pods

    cdef void take(self, int p) noexcept nogil
    cdef void add(self, const Entry* entry) noexcept nogil
    cdef void change(self, const Entry* entry, int sign) noexcept nogil
    cdef void undo(self, int n_kept) noexcept nogil
    cdef Cost total(self, int first) noexcept nogil
    cdef int cheapest(self, int card, bint is_by_size) noexcept nogil
    cdef void trim(self, int first, int card) noexcept nogil
    cdef int dearest_untested(self, int first) noexcept nogil

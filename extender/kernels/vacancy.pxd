"""One node as it is with some of its pods gone, and whether one more fits: see `vacancy.pyx`."""


cdef class Vacancy:
    # Columns of the node table, by node or card; `start` is where the pods of a node begin.
    cdef const int[::1] free, slots, mib, n_cards, start
    cdef const long long[::1] free_cpu, free_memory, extra_free
    # What the pods hold: cards card_start[p]..card_start[p + 1], amounts (GPU, CPU, memory).
    cdef const int[::1] card_start, card_ix, card_milli
    cdef const long long[::1] amounts, extra_held
    # What the one more asks for.
    cdef const long long[::1] extra_need
    cdef int stride, devices, milli, want_mib, n_extra
    cdef long long cpu, memory
    # The node being looked at: its pods are first..last - 1, `need` is what it wants of each card.
    cdef int card_free[64]
    cdef int cards, need, first, last
    cdef long long left_cpu, left_memory, left_slots
    cdef long long[::1] left_extra
    # By pod, from `first` on.
    cdef unsigned char[::1] is_gone

    cdef void load(self, int ix) noexcept nogil
    cdef void leave(self, int p, int sign) noexcept nogil
    cdef bint has_cards(self) noexcept nogil
    cdef bint has_host(self) noexcept nogil
    cdef bint fits(self) noexcept nogil
    cdef bint helps(self, int p, int card) noexcept nogil
    cdef int n_fitting(self, int most) noexcept nogil

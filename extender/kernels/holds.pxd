"""Places for pods of one demand on a node table: see `holds.pyx`."""


cdef class Holds:
    # Columns of the node table, by node or card.
    cdef int[::1] free, slots
    cdef const int[::1] mib, n_cards, capacity
    cdef long long[::1] free_cpu, free_memory
    cdef const long long[::1] all_cpu, all_memory
    cdef int stride, devices, milli, want_mib, rule
    cdef long long cpu, memory

    cdef int room(self, int ix, int most) noexcept nogil
    cdef int score(self, int ix) noexcept nogil
    cdef unsigned long long take(self, int ix) noexcept nogil
    cdef void change(self, int ix, unsigned long long taken, int sign) noexcept nogil

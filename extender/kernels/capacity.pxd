"""What `victims` may see of a node that is loaded."""


cdef class Capacity:
    # Columns of the node table, by node or card; `start` is where the pods of a node begin.
    cdef const int[::1] free, slots, mib, n_cards, start
    cdef const long long[::1] free_cpu, free_memory, counted_free
    # What pods hold: cards card_start[p]..card_start[p + 1], amounts (GPU, CPU, memory), and what
    # is counted one by one.
    cdef const int[::1] card_start, card_ix, card_milli
    cdef const long long[::1] amounts, counted_held
    # What the new pod asks for.
    cdef const long long[::1] counted_need
    cdef int stride, devices, milli, want_mib, n_counted
    cdef long long cpu, memory
    # The node that is loaded: pods first..last - 1; `need` is milli on each card.
    cdef int card_free[64]
    cdef int cards, need, first, last
    cdef long long left_cpu, left_memory, left_slots
    cdef long long[::1] left_counted
    # By pod, from `first` on.
    cdef unsigned char[::1] is_gone

    cdef void load(self, int ix) noexcept nogil
    cdef void leave(self, int p, int sign) noexcept nogil
    cdef int n_free_cards(self) noexcept nogil
    cdef bint has_cards(self) noexcept nogil
    cdef bint has_host(self) noexcept nogil
    cdef int part(self, int p, int card) noexcept nogil
    cdef int n_fitting(self, int most) noexcept nogil

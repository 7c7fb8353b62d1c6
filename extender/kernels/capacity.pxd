"""The free capacity of one node, as `victims` uses it."""


cdef class Capacity:
    # Columns of the node table, by node or card; the pods of node ix are start[ix]..start[ix + 1].
    cdef const int[::1] free, slots, mib, n_cards, start
    cdef const long long[::1] free_cpu, free_memory, counted_free
    # Allocations by pod: cards card_start[p]..card_start[p + 1], amounts (GPU, CPU, memory), and
    # counted resources.
    cdef const int[::1] card_start, card_ix, card_milli
    cdef const long long[::1] amounts, counted_held
    # The request of the pending pod.
    cdef const long long[::1] counted_need
    cdef int stride, devices, milli, want_mib, n_counted
    cdef long long cpu, memory
    # The loaded node: its pods are first..last - 1; `need` is the pending pod's milli per card.
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

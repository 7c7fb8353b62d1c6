"""Whether a pod may leave and at what price: see `appraisal.pyx`."""

from extender.kernels.costs cimport Entry


cdef class Appraisal:
    # By pod.
    cdef const int[::1] owner, turn, shape
    cdef const long long[::1] amounts, lost
    cdef const unsigned char[::1] is_here, is_core, may_move, is_safe
    # By workload.
    cdef const int[::1] surplus, priority, rank, queue
    cdef const long long[::1] whole_lost, whole_amounts, age
    cdef const unsigned char[::1] is_stuck
    # By queue, or queue and resource; floors by tier first.
    cdef const long long[::1] has, floors
    cdef const int[::1] path_start, path
    cdef const unsigned char[::1] is_mobile, tiers
    # By shape.
    cdef const unsigned char[::1] moves
    cdef int below_priority, n_floors
    # What those chosen so far give: by queue and resource; by workload how many stop, their
    # milli-GPU-seconds, what those hold by resource who stop alone, and how many move.
    cdef long long[::1] taken, stopped_lost, stopped_amounts
    cdef int[::1] n_stopped, n_moved

    cdef bint appraise(self, int p, Entry* entry) noexcept nogil
    cdef bint set_tier(self, int queue, Entry* entry) noexcept nogil
    cdef void give(self, const Entry* entry, int sign) noexcept nogil

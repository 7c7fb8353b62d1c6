"""Which pods may be victims and at what cost, as `victims` uses it."""

from extender.kernels.costs cimport Victim


cdef class Terms:
    # By pod.
    cdef const int[::1] owner, turn, shape
    cdef const long long[::1] amounts, lost
    cdef const unsigned char[::1] is_here, is_core, may_move, is_safe
    # By workload.
    cdef const int[::1] surplus, priority, rank, queue
    cdef const long long[::1] whole_lost, whole_amounts, age
    cdef const unsigned char[::1] is_stuck
    # By queue, or by queue and resource; floors by tier, queue and resource.
    cdef const long long[::1] has, floors
    cdef const int[::1] path_start, path
    cdef const unsigned char[::1] is_mobile, tiers
    # By shape.
    cdef const unsigned char[::1] moves
    cdef int below_priority, n_floors
    # Totals of the chosen victims. `taken`: amounts by queue and resource. By workload: the number
    # of evicted pods, their milli-GPU-seconds, the amounts of surplus pods by resource, and the
    # number of moved pods.
    cdef long long[::1] taken, evicted_lost, evicted_amounts
    cdef int[::1] n_evicted, n_moved

    cdef bint appraise(self, int p, Victim* out) noexcept nogil
    cdef bint set_tier(self, int queue, Victim* out) noexcept nogil
    cdef void give(self, const Victim* victim, int sign) noexcept nogil

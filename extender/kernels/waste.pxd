"""What expected pods leave idle on one node: leaf functions of the kernel `fragments`.

`free` points at the node's first card: milli free, negative where nothing fits. The tables are
defined in `extender.kernels.typical`.
"""

cdef enum:
    MOST_TYPES = 512


cdef struct Expected:
    # The typical pods, one entry per type.
    const long long* need_cpu
    const int* devices
    const int* milli
    const int* weight
    const unsigned long long* models
    # chance[r]: in how many cases of chance[total] all draws are among types of total weight r.
    const long long* chance
    int total
    int n_types
    bint is_deep
    bint is_one_draw
    # `left` is by type; `order` sorts the types by it, and is nearly sorted for the next node.
    int order[MOST_TYPES]
    long long left[MOST_TYPES]


cdef inline long long left_by(
    const Expected* of, int t, const int* free, int n_cards, int model, long long cpu, int idle
) noexcept nogil:
    """Milli idle after one pod of type `t`; if deep, plus those after as many as fit."""
    cdef int c, fitting = 0, small = 0, devices = of.devices[t], milli = of.milli[t]
    cdef long long copies = 0
    if devices > 0 and (of.models[t] >> model) & 1 and cpu >= of.need_cpu[t]:
        for c in range(n_cards):
            if free[c] >= milli:
                fitting += 1
                copies += free[c] // milli if of.is_deep else 0
            elif free[c] > 0:
                small += free[c]
    if devices == 0 or fitting < devices:
        return 2 * idle if of.is_deep else idle
    if not of.is_deep:
        return small
    copies //= devices
    if of.need_cpu[t] > 0:
        copies = min(copies, cpu // of.need_cpu[t])
    return small + idle - copies * devices * milli


cdef inline void sort_types(Expected* of) noexcept nogil:
    """Sort `order` by ascending `left`."""
    cdef int at, to, t
    for at in range(1, of.n_types):
        t = of.order[at]
        to = at
        while to > 0 and of.left[of.order[to - 1]] > of.left[t]:
            of.order[to] = of.order[to - 1]
            to -= 1
        of.order[to] = t


cdef inline long long waste_of(
    Expected* of, const int* free, int n_cards, int model, long long cpu
) noexcept nogil:
    """The node's fragmentation, the least that the draws leave, in 1/`Typical.unit` milli."""
    cdef int t, c, at, idle = 0, rest = of.total
    cdef long long total = 0, before, after
    for c in range(n_cards):
        idle += free[c] if free[c] > 0 else 0
    if idle == 0:
        return 0
    for t in range(of.n_types):
        of.left[t] = left_by(of, t, free, n_cards, model, cpu, idle)
    if of.is_one_draw:
        for t in range(of.n_types):
            total += of.weight[t] * of.left[t]
        return total
    sort_types(of)
    before = of.chance[rest]
    # Invariant: in chance[rest] cases all draws are among order[at:] and leave at least its first.
    for at in range(of.n_types):
        rest -= of.weight[of.order[at]]
        after = of.chance[rest]
        total += (before - after) * of.left[of.order[at]]
        before = after
    return total

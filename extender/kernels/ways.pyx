# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rates nodes by what remains after placing a pod on their best cards.

`fragments` and the laboratory's `published` provide the rating; their twins cover this module too.
"""

from extender.kernels.cards cimport BINPACK, WHOLE, card_need, cards_fit, cards_pick

cdef enum:
    MOST_CARDS = 64


cdef int rate_nodes(
    nodes, demand, const int[::1] candidates, scores, rating rate, const void* by
) except -1:
    """Set score and card of every candidate for one pod of `demand`; -1 if it does not fit.

    For a fraction of one card each card is tried, and the best one is set, ties to the first. Other
    pods get bin-pack's cards, and -1.
    """
    cdef object cards = nodes.cards
    cdef const int[::1] free = cards.card_free, n_cards = cards.n_cards, mib = cards.card_mib
    cdef const int[::1] slots = nodes.free_pods
    cdef const long long[::1] free_cpu = nodes.free_cpu_milli, free_memory = nodes.free_memory_mib
    cdef int[::1] score = scores.score, card = scores.card
    cdef int milli = demand.milli, want_mib = demand.gpu_memory_mib, ix, stride = cards.stride
    cdef long long cpu = demand.cpu_milli, memory = demand.memory_mib
    cdef Fitting of
    cdef Py_ssize_t at
    of.devices = demand.devices
    with nogil:
        for at in range(candidates.shape[0]):
            ix = of.ix = candidates[at]
            score[ix] = card[ix] = -1
            of.n_cards, of.free = n_cards[ix], &free[ix * stride]
            of.need, of.cpu_left = card_need(milli, want_mib, mib[ix]), free_cpu[ix] - cpu
            if slots[ix] < 1 or (cpu > 0 and of.cpu_left < 0):
                continue
            if memory > 0 and free_memory[ix] < memory:
                continue
            if cards_fit(of.free, of.n_cards, of.devices, of.need):
                score[ix] = rate_ways(&of, rate, by, &card[ix])
    return 0


cdef int rate_ways(const Fitting* of, rating rate, const void* by, int* card) noexcept nogil:
    cdef int c, rated, best = -1, need = of.need
    cdef int left[MOST_CARDS]
    cdef unsigned long long taken
    for c in range(of.n_cards):
        left[c] = of.free[c]
    if of.devices != 1 or need == WHOLE:
        taken = cards_pick(left, of.n_cards, of.devices, need, BINPACK)
        for c in range(of.n_cards):
            left[c] -= need if (taken >> c) & 1 else 0
        return rate(by, of, left)
    for c in range(of.n_cards):
        if left[c] < need or (c > 0 and left[c] == left[c - 1]):
            continue
        left[c] -= need
        rated = rate(by, of, left)
        left[c] += need
        if rated > best:
            best = rated
            card[0] = c
    return best

"""Fit and score on one node: the leaf functions that the node kernels share.

`free` points at the node's first card: milli free, negative where nothing fits. The placement rules
are the numbers below; `extender.kernels.nodes` exports them by name.
"""

cdef enum:
    WHOLE = 1000
    BEST_SCORE = 1_000_000
    BINPACK = 0
    SPREAD = 1
    BEST_FIT = 2
    FIRST_FIT = 3


cdef inline int card_need(int milli, int mib, int card_mib) noexcept nogil:
    """The milli that the pod needs on each card of this node; WHOLE + 1 if cards are too small."""
    cdef long long need
    if mib == 0:
        return milli
    if card_mib <= 0:
        return WHOLE + 1
    need = (<long long>mib * WHOLE + card_mib - 1) // card_mib
    return WHOLE + 1 if need > WHOLE else <int>need


cdef inline bint cards_fit(const int* free, int n_cards, int devices, int need) noexcept nogil:
    """Whether `devices` cards have `need` milli free each."""
    cdef int c, found = 0
    if devices == 0:
        return True
    if need > WHOLE:
        return False
    # No early exit, since the branch would be unpredictable and counting all cards is cheaper.
    for c in range(n_cards):
        found += free[c] >= need
    return found >= devices


cdef inline int cards_room(
    const int* free, int n_cards, int devices, int need, int most
) noexcept nogil:
    """How many pods with `need` milli on each of `devices` cards fit, at most `most`."""
    cdef int c, slots, fitting, pods
    if devices == 0:
        return most
    if need > WHOLE or need <= 0:
        return 0
    if need * 2 > WHOLE or devices == 1:
        slots = 0
        for c in range(n_cards):
            slots += free[c] // need if free[c] > 0 else 0
        return min(most, slots // devices)
    # A pod uses a card at most once, so no card counts more slots than there are pods.
    for pods in range(1, most + 1):
        slots = 0
        for c in range(n_cards):
            fitting = free[c] // need if free[c] > 0 else 0
            slots += min(fitting, pods)
        if slots < pods * devices:
            return pods - 1
    return most


cdef inline unsigned long long cards_pick(
    const int* free, int n_cards, int devices, int need, int rule
) noexcept nogil:
    """The cards for the pod, as bits; 0 if it does not fit or requests none."""
    cdef int c, best, _at
    cdef unsigned long long taken = 0
    if devices == 0 or not cards_fit(free, n_cards, devices, need):
        return 0
    for _at in range(devices):
        best = -1
        for c in range(n_cards):
            if free[c] < need or (taken >> c) & 1:
                continue
            if best < 0:
                best = c
            elif rule == SPREAD:
                best = c if free[c] > free[best] else best
            elif rule != FIRST_FIT:
                best = c if free[c] < free[best] else best
        taken |= <unsigned long long>1 << best
    return taken


cdef inline int cards_score(
    const int* free, int n_cards, int capacity, int devices, int need, int rule
) noexcept nogil:
    """The score of a node that fits, 0..BEST_SCORE, higher is better; see `score_nodes`."""
    cdef int c, milli, used, n_partial = 0, tightest = WHOLE, emptiest = 0, idle = 0
    cdef bint is_partial
    cdef long long full
    if rule == FIRST_FIT:
        return 0
    for c in range(n_cards):
        # Conditional moves, since branches on a card's state would be unpredictable.
        milli = free[c] if free[c] > 0 else 0
        idle += milli
        emptiest = milli if milli > emptiest else emptiest
        is_partial = (need <= milli) & (milli < WHOLE)
        n_partial += is_partial
        tightest = milli if is_partial & (milli < tightest) else tightest
    if capacity <= 0:
        return BEST_SCORE
    if rule == BEST_FIT:
        # At most 64 cards of 1000 milli are left over.
        return BEST_SCORE - 10 * (idle - devices * need)
    used = capacity - idle + devices * need
    if devices and need == WHOLE:
        full = <long long>used * BEST_SCORE // capacity
        return <int>(BEST_SCORE - full if rule == SPREAD else full)
    # At most 64 cards of 1000 milli: this fits 32 bits, where a division is cheap.
    full = used * <int>WHOLE // capacity
    if devices == 0:
        return <int>(500 * (WHOLE - full if rule == SPREAD else full))
    if rule == SPREAD:
        return <int>(900 * (WHOLE - full) + 100 * emptiest)
    if n_partial < devices:
        return <int>(400 * full)
    return <int>(400 * full + 500_000 + 100 * (WHOLE - (tightest - need)))


cdef inline int host_score(
    long long free_cpu, long long all_cpu, long long free_memory, long long all_memory,
    bint has_cards, int rule
) noexcept nogil:
    """The score of a node for pods without GPUs, 0..BEST_SCORE; nodes without cards come first.

    `free_cpu` and `free_memory` are what is left beside the pod.
    """
    cdef long long used = 0
    cdef int worse = 0 if has_cards else BEST_SCORE // 2
    if rule == FIRST_FIT:
        return worse
    if all_cpu > 0 and free_cpu < all_cpu:
        used += 250_000 - 250_000 * max(<long long>0, free_cpu) // all_cpu
    if all_memory > 0 and free_memory < all_memory:
        used += 250_000 - 250_000 * max(<long long>0, free_memory) // all_memory
    return worse + <int>(500_000 - used if rule == SPREAD else used)

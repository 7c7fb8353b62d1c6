"""What one node's cards can take, and how well: the leaves that the node kernels share.

`free` points at the node's first card: milli free, negative where nothing fits.
"""

cdef enum:
    WHOLE = 1000
    BEST_SCORE = 1_000_000


cdef inline int card_need(int milli, int mib, int card_mib) noexcept nogil:
    """Milli wanted of each card of this node; WHOLE + 1 where its cards are too small."""
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
    # No early exit: which cards fit can't be predicted, and counting all of them costs less.
    for c in range(n_cards):
        found += free[c] >= need
    return found >= devices


cdef inline int cards_score(
    const int* free, int n_cards, int capacity, int devices, int need, bint is_spread
) noexcept nogil:
    """0..BEST_SCORE of a node that fits, higher is better; see `score_nodes` for the meaning."""
    cdef int c, milli, used, n_partial = 0, tightest = WHOLE, emptiest = 0, idle = 0
    cdef bint is_partial
    cdef long long full
    for c in range(n_cards):
        # Selections rather than branches: the state of a card can't be predicted.
        milli = free[c] if free[c] > 0 else 0
        idle += milli
        emptiest = milli if milli > emptiest else emptiest
        is_partial = (need <= milli) & (milli < WHOLE)
        n_partial += is_partial
        tightest = milli if is_partial & (milli < tightest) else tightest
    if capacity <= 0:
        return BEST_SCORE
    used = capacity - idle + devices * need
    if devices and need == WHOLE:
        full = <long long>used * BEST_SCORE // capacity
        return <int>(BEST_SCORE - full if is_spread else full)
    # At most 64 cards of 1000 milli: this fits 32 bits, where a division is cheap.
    full = used * <int>WHOLE // capacity
    if devices == 0:
        return <int>(500 * (WHOLE - full if is_spread else full))
    if is_spread:
        return <int>(900 * (WHOLE - full) + 100 * emptiest)
    if n_partial < devices:
        return <int>(400 * full)
    return <int>(400 * full + 500_000 + 100 * (WHOLE - (tightest - need)))

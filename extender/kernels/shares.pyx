# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Division of what is left over among claimants, in exact integers. Twin: `shares_twin`."""

from libc.stdlib cimport free, malloc, qsort

cdef extern from *:
    # 126 bits hold any product made here; Cython only has to know that it is an integer.
    ctypedef long long int128 "__int128_t"

cdef enum:
    WHOLE = 1000

cdef struct Claim:
    int128 rest       # (exact part - rounded part) * sum of weights, while rounding
    long long weight  # > 0
    long long room    # > 0: the most it may get
    Py_ssize_t ix     # of the claimant; breaks ties


def divide(long long surplus, const long long[::1] weight, const long long[::1] room,
           const long long[::1] granule, long long[::1] out):
    """Give `surplus` milli to claimants by weight, none more than its room; returns what is left.

    All arrays are int64[n], in the order that breaks ties. out[i] is set to the grant. Claimants of
    weight 0 get nothing. A claimant that wants no more than its part gets what it wants, and the
    rest is divided again. Parts below the wish are rounded down to the claimant's granule
    (1000: whole GPUs; 1: milli), and what that leaves goes out by largest remainder. The caller
    vouches that weights, rooms and surplus are at most 2**52 and n at most 2**20. O(n log n).
    """
    cdef Py_ssize_t i, n_claims = 0, n = weight.shape[0]
    cdef int128 total = 0
    cdef Claim* claims = <Claim*>malloc((n + 1) * sizeof(Claim))
    if claims == NULL:
        raise MemoryError(f"no memory to divide among {n} claimants")
    with nogil:
        for i in range(n):
            out[i] = 0
            if weight[i] > 0 and room[i] > 0:
                claims[n_claims] = Claim(rest=0, weight=weight[i], room=room[i], ix=i)
                total += weight[i]
                n_claims += 1
        if surplus > 0:
            surplus = _give(surplus, total, claims, n_claims, granule, out)
        free(claims)
    return surplus


cdef long long _give(long long surplus, int128 total, Claim* claims, Py_ssize_t n,
                     const long long[::1] granule, long long[::1] out) noexcept nogil:
    """Satisfy claims for no more than their part, round what others get; returns what is left."""
    cdef Py_ssize_t i = 0
    qsort(claims, n, sizeof(Claim), _by_appetite)
    # Invariant: claims[:i] have all they want, `surplus` and `total` are of claims[i:]; satisfying
    # one makes the parts of the others no smaller, so no claim is looked at twice.
    while i < n and <int128>claims[i].room * total <= <int128>surplus * claims[i].weight:
        out[claims[i].ix] = claims[i].room
        surplus -= claims[i].room
        total -= claims[i].weight
        i += 1
    return _round(surplus, total, claims + i, n - i, granule, out)


cdef long long _round(long long surplus, int128 total, Claim* claims, Py_ssize_t n,
                      const long long[::1] granule, long long[::1] out) noexcept nogil:
    """Grant rounded parts to claimants that all want more than theirs; returns what is left.

    What rounding leaves goes to the largest remainders, a granule each; then whole GPUs in turns.
    """
    cdef long long left = surplus, part, step
    cdef Py_ssize_t at, ix
    cdef bint is_first = True
    for at in range(n):
        ix = claims[at].ix
        part = <long long>(<int128>surplus * claims[at].weight // total)
        out[ix] = part // granule[ix] * granule[ix]
        claims[at].rest = <int128>surplus * claims[at].weight - <int128>out[ix] * total
        left -= out[ix]
    qsort(claims, n, sizeof(Claim), _by_remainder)
    while left > 0 and n > 0:
        for at in range(n):
            ix = claims[at].ix
            step = granule[ix] if is_first else WHOLE
            step = min(step, claims[at].room - out[ix], left)
            out[ix] += step
            left -= step
        is_first = False
    return left


cdef int _by_appetite(const void* a, const void* b) noexcept nogil:
    """By room over weight, the least first."""
    cdef const Claim* x = <const Claim*>a
    cdef const Claim* y = <const Claim*>b
    cdef int128 left = <int128>x.room * y.weight, right = <int128>y.room * x.weight
    if left != right:
        return -1 if left < right else 1
    return -1 if x.ix < y.ix else 1


cdef int _by_remainder(const void* a, const void* b) noexcept nogil:
    """By remainder, the largest first."""
    cdef const Claim* x = <const Claim*>a
    cdef const Claim* y = <const Claim*>b
    if x.rest != y.rest:
        return -1 if x.rest > y.rest else 1
    return -1 if x.ix < y.ix else 1

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Division of a surplus among claimants, in exact integers. Twin: `shares_twin`."""

from libc.stdlib cimport free, malloc, qsort

cdef extern from *:
    # Products here need at most 126 bits. Cython only has to know that this is an integer type.
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
    """Divide `surplus` milli among claimants by weight, each up to its room; returns what is left.

    All arrays are int64[n], in the order that breaks ties. out[i] is set to the grant. Claimants of
    weight 0 get nothing. A claimant whose room is at most its part gets its room, and the remainder
    is divided again. Other parts are rounded down to the claimant's granule (1000: whole GPUs;
    1: milli), and the difference is granted by largest remainder. The caller vouches that weights,
    rooms and surplus are at most 2**52 and n at most 2**20. O(n log n).
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
    """Satisfy claims up to their part, round the other grants; returns what is left."""
    cdef Py_ssize_t i = 0
    qsort(claims, n, sizeof(Claim), _by_appetite)
    # Invariant: claims[:i] are satisfied, `surplus` and `total` are for claims[i:]. Satisfying one
    # claim does not reduce the parts of the others, so each is visited once.
    while i < n and <int128>claims[i].room * total <= <int128>surplus * claims[i].weight:
        out[claims[i].ix] = claims[i].room
        surplus -= claims[i].room
        total -= claims[i].weight
        i += 1
    return _round(surplus, total, claims + i, n - i, granule, out)


cdef long long _round(long long surplus, int128 total, Claim* claims, Py_ssize_t n,
                      const long long[::1] granule, long long[::1] out) noexcept nogil:
    """Grant rounded parts to claimants with more room than their part; returns what is left.

    What rounding leaves goes to the largest remainders, one granule each, then in whole GPUs round
    robin.
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
    """By room over weight, ascending."""
    cdef const Claim* x = <const Claim*>a
    cdef const Claim* y = <const Claim*>b
    cdef int128 left = <int128>x.room * y.weight, right = <int128>y.room * x.weight
    if left != right:
        return -1 if left < right else 1
    return -1 if x.ix < y.ix else 1


cdef int _by_remainder(const void* a, const void* b) noexcept nogil:
    """By remainder, descending."""
    cdef const Claim* x = <const Claim*>a
    cdef const Claim* y = <const Claim*>b
    if x.rest != y.rest:
        return -1 if x.rest > y.rest else 1
    return -1 if x.ix < y.ix else 1

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Division of what is left over among claimants, in exact integers. Twin: `shares_twin`."""

cdef extern from *:
    # 126 bits hold any product of two int64; Cython only has to know that it is an integer.
    ctypedef long long int128 "__int128_t"

cdef enum:
    WHOLE = 1000


def divide(long long surplus, const long long[::1] weight, const long long[::1] room,
           const long long[::1] granule, long long[::1] out):
    """Give `surplus` milli to claimants by weight, none more than its room; returns what is left.

    All arrays are int64[n], in the order that breaks ties. out[i] is set to the grant. Claimants of
    weight 0 get nothing. Whoever wants no more than its part gets what it wants, and the rest is
    divided again. Parts that don't cover the wish are rounded down to the claimant's granule
    (1000: whole GPUs; 1: milli), and what that leaves goes out by largest remainder.
    """
    cdef Py_ssize_t i, n = weight.shape[0]
    cdef long long part, asked
    cdef int128 total
    cdef bint is_open = True
    with nogil:
        for i in range(n):
            out[i] = 0
        # Each round satisfies at least one claimant; shares of the others can only grow.
        while is_open and surplus > 0:
            is_open = False
            total = 0
            asked = 0
            for i in range(n):
                if out[i] < room[i]:
                    total += weight[i]
            if total == 0:
                break
            for i in range(n):
                if weight[i] > 0 and out[i] < room[i]:
                    part = <long long>(<int128>surplus * weight[i] // total)
                    if room[i] <= part:
                        out[i] = room[i]
                        asked += room[i]
                        is_open = True
            surplus -= asked
        if surplus > 0 and total > 0:
            surplus = _round(surplus, total, weight, room, granule, out)
    return surplus


cdef long long _round(long long surplus, int128 total, const long long[::1] weight,
                      const long long[::1] room, const long long[::1] granule,
                      long long[::1] out) noexcept nogil:
    """Grant the rounded parts of claimants that want more than theirs; returns what is left (0)."""
    cdef Py_ssize_t i, best, n = weight.shape[0]
    cdef long long left = surplus, part, step
    cdef int128 rest, best_rest, before_rest
    cdef Py_ssize_t before = -1
    cdef bint is_first = True
    # Open claimants still have out[i] == 0 < room[i]; the satisfied have out[i] == room[i].
    for i in range(n):
        if weight[i] > 0 and out[i] < room[i]:
            part = <long long>(<int128>surplus * weight[i] // total)
            out[i] = part // granule[i] * granule[i]
            left -= out[i]
    # The remainders are known again from (surplus, total, weight, granule): no memory is needed.
    # Picks go in order (remainder falling, index rising); after the last, whole GPUs once more.
    before_rest = 0
    while left > 0:
        best = -1
        best_rest = -1
        for i in range(n):
            if weight[i] == 0 or out[i] >= room[i]:
                continue
            part = <long long>(<int128>surplus * weight[i] // total)
            rest = <int128>surplus * weight[i] - <int128>(part // granule[i] * granule[i]) * total
            if before >= 0 and (rest > before_rest or (rest == before_rest and i <= before)):
                continue
            if rest > best_rest:
                best = i
                best_rest = rest
        if best < 0:
            if before < 0:
                break
            before = -1
            is_first = False
            continue
        before = best
        before_rest = best_rest
        step = granule[best] if is_first else WHOLE
        if step > room[best] - out[best]:
            step = room[best] - out[best]
        if step > left:
            step = left
        out[best] += step
        left -= step
    return left

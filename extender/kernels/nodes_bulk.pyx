# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Places for many pods that ask for the same: which nodes and cards they get.

Arguments are as in `nodes`; `out_ix` (int32[n]) and `out_cards` (uint64[n], a set of card indices)
are as long as there are pods. The table is written to while a call runs, and is as it was when it
returns. Twin: `nodes_bulk_twin`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.holds cimport Holds


def fill_nodes(
    nodes, demand, const int[::1] candidates, int rule, int[::1] out_ix,
    unsigned long long[::1] out_cards,
):
    """Give pod after pod the best node, as `nodes.best_node` does; returns how many have one.

    Cost: one pass over the cards, and one over the candidates' scores for every pod.
    """
    cdef Holds table = Holds(nodes, demand, rule)
    cdef Py_ssize_t n = candidates.shape[0], at, best, placed = 0
    cdef int* scores = <int*>calloc(n + 1, sizeof(int))
    if scores == NULL:
        raise MemoryError
    with nogil:
        for at in range(n):
            scores[at] = table.score(candidates[at])
        # Invariant: scores[:] are those of the table with out[:placed] held.
        while placed < out_ix.shape[0]:
            best = 0
            for at in range(1, n):
                if scores[at] > scores[best]:
                    best = at
            if n == 0 or scores[best] < 0:
                break
            out_ix[placed] = candidates[best]
            out_cards[placed] = table.take(candidates[best])
            scores[best] = table.score(candidates[best])
            placed += 1
        for at in range(placed):
            table.change(out_ix[at], out_cards[at], 1)
    release(scores)
    return placed


def pack_nodes(
    nodes, demand, const int[::1] candidates, int rule, int[::1] out_ix,
    unsigned long long[::1] out_cards,
):
    """Give the pods as few nodes as they need; returns how many have a place.

    As long as no node takes all that are left, one that takes most is filled; the rest goes where
    it fits most tightly. Among equals the rule decides, then the order of the candidates.
    """
    cdef Holds table = Holds(nodes, demand, rule)
    cdef Py_ssize_t n = candidates.shape[0], at, best, placed = 0
    cdef int left = <int>out_ix.shape[0]
    cdef int* rooms = <int*>calloc(2 * n + 1, sizeof(int))
    cdef int* scores = rooms + n
    if rooms == NULL:
        raise MemoryError
    with nogil:
        for at in range(n):
            rooms[at] = table.room(candidates[at], left)
            scores[at] = table.score(candidates[at])
        while left > 0:
            best = -1
            for at in range(n):
                if rooms[at] <= 0:
                    continue
                if best < 0 or is_better(rooms[at], rooms[best], left) or (
                    rooms[at] == rooms[best] and scores[at] > scores[best]
                ):
                    best = at
            if best < 0:
                break
            while left > 0 and table.score(candidates[best]) >= 0:
                out_ix[placed] = candidates[best]
                out_cards[placed] = table.take(candidates[best])
                placed += 1
                left -= 1
            rooms[best] = 0
        for at in range(placed):
            table.change(out_ix[at], out_cards[at], 1)
    release(rooms)
    return placed


cdef inline bint is_better(int room, int than, int left) noexcept nogil:
    """Whether a node with `room` serves `left` pods better than one with room for `than`."""
    if than >= left:
        return left <= room < than
    return room > than

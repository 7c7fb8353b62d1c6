"""Nodes rated by what the best way to put a pod on their cards leaves: see `ways.pyx`."""


# One node and one pod that fits: its cards, milli free, what the pod wants of them, and the
# milli-CPU that stay free beside it.
cdef struct Fitting:
    int ix
    int n_cards
    const int* free
    int devices
    int need
    long long cpu_left


# How good it is when the node's cards have so much left; at least 0. `by` is the caller's own.
ctypedef int (*rating)(const void* by, const Fitting* of, const int* left) noexcept nogil


cdef int rate_nodes(
    nodes, demand, const int[::1] candidates, scores, rating rate, const void* by
) except -1

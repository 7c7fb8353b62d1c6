"""Rates nodes by what remains after placing a pod on their best cards; see `ways.pyx`."""


# A node and a pod that fits: the free milli of its cards, the pod's devices and milli per device,
# and the milli-CPU left beside the pod.
cdef struct Fitting:
    int ix
    int n_cards
    const int* free
    int devices
    int need
    long long cpu_left


# Rates a node whose cards have `left` milli; at least 0. `by` is the caller's argument.
ctypedef int (*rating)(const void* by, const Fitting* of, const int* left) noexcept nogil


cdef int rate_nodes(
    nodes, demand, const int[::1] candidates, scores, rating rate, const void* by
) except -1

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sums of idle capacity and of evictable amounts by queue, for a cheap "does not fit".

`nodes` is a NodeTable and `workloads` the Candidates (`extender.policy.preemption.candidates`).
Cost: one pass. Twin: `sums_twin`.
"""


def sum_idle(nodes, const int[::1] candidates, long long[::1] out):
    """Set out (int64[3]) to the total free milli-GPU, milli-CPU and MiB of the nodes."""
    cdef const int[::1] free = nodes.cards.card_free
    cdef const int[::1] n_cards = nodes.cards.n_cards
    cdef const long long[::1] cpu = nodes.free_cpu_milli
    cdef const long long[::1] memory = nodes.free_memory_mib
    cdef int stride = nodes.cards.stride, at, ix
    cdef Py_ssize_t each
    out[0] = out[1] = out[2] = 0
    with nogil:
        for each in range(candidates.shape[0]):
            ix = candidates[each]
            for at in range(ix * stride, ix * stride + n_cards[ix]):
                out[0] += max(0, free[at])
            out[1] += max(<long long>0, cpu[ix])
            out[2] += max(<long long>0, memory[ix])


def sum_units(workloads, long long[::1] total, long long[::1] largest):
    """Set `total` to the sum over each queue's workloads, and `largest` to that of the largest one.

    Both are int64[3 * n], by queue and resource.
    """
    cdef const long long[::1] amounts = workloads.whole_amounts
    cdef const int[::1] queue = workloads.queue
    cdef Py_ssize_t w
    cdef int at, spot
    total[:] = 0
    largest[:] = 0
    with nogil:
        for w in range(queue.shape[0]):
            for at in range(3):
                spot = 3 * queue[w] + at
                total[spot] += amounts[3 * w + at]
                largest[spot] = max(largest[spot], amounts[3 * w + at])

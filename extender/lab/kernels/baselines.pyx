# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The scores of four packing policies that fragmentation is held against. Twin: `baselines_twin`.

They are those of the FGD paper's evaluation (Weng et al., USENIX ATC 2023), in exact integers: 0 to
100, higher is better. A node counts as at most 128 cores and 8 GPUs large. Only replays use them;
the scheduler's own rules are in `nodes` and `fragments`.
"""

from extender.kernels.cards cimport BINPACK, WHOLE, card_need, cards_fit, cards_pick

cdef enum:
    _DOT_PRODUCT = 0
    _CLUSTERING = 1
    _PACKING = 2
    _BEST_FIT = 3
    MOST_CPU = 128_000
    MOST_GPU = 8_000

DOT_PRODUCT, CLUSTERING, PACKING, BEST_FIT = _DOT_PRODUCT, _CLUSTERING, _PACKING, _BEST_FIT


cdef inline int dot_product(
    long long cpu, long long gpu, long long idle_cpu, long long idle
) noexcept nogil:
    """Prefers the node whose free CPU and GPU, as a vector, has the least product with the pod."""
    # 128 cores squared, the common denominator, is 256 times 8 GPUs squared.
    cdef long long most = <long long>MOST_CPU * MOST_CPU
    return <int>(100 * (2 * most - idle_cpu * cpu - 256 * idle * gpu) // (2 * most))


cdef inline int clustering(
    unsigned long long tag, unsigned long long tags, int idle
) noexcept nogil:
    """Prefers nodes with pods of this kind only, then of this and others, then without pods."""
    cdef int full = 25 * (MOST_GPU - idle) // MOST_GPU
    if tag == 0:
        return 0
    if tags & tag:
        return full + (75 if tags == tag else 50)
    return full + (25 if tags == 0 else 0)


cdef inline int packing(const int* free, int n_cards, int devices, int need) noexcept nogil:
    """Prefers shared cards, the fuller the better, then used nodes, then small nodes."""
    cdef int c, n_idle = 0, n_idle_taken = 0, free_percent = 0
    cdef unsigned long long taken
    if devices == 0:
        return 0
    for c in range(n_cards):
        n_idle += free[c] == WHOLE
    if n_idle == n_cards:
        return max(33 - n_cards, n_cards)
    taken = cards_pick(free, n_cards, devices, need, BINPACK)
    for c in range(n_cards):
        if (taken >> c) & 1:
            n_idle_taken += free[c] == WHOLE
            free_percent += free[c] // 10
    if n_idle_taken > 0:
        return max(50 - n_idle_taken, 33)
    return max(100 - free_percent // 10, 50)


cdef inline int best_fit(long long left_cpu, long long left_gpu) noexcept nogil:
    """Prefers the node with the least CPU and GPU left over, weighed alike."""
    return <int>(100 * (2 * MOST_CPU - left_cpu - 16 * left_gpu) // (2 * MOST_CPU))


def score_nodes(nodes, baseline, demand, const int[::1] candidates, scores):
    """Set `scores.score[ix]` of every candidate for one pod of `demand`; -1 where it does not fit.

    `nodes` is a NodeTable; `baseline.rule` is one of the constants here and `baseline.tags`
    (uint64[n]) the kinds of pods on each node: bit 0 for fractions, bit k for pods of k whole GPUs.
    """
    cdef object cards = nodes.cards
    cdef const int[::1] free = cards.card_free, n_cards = cards.n_cards, mib = cards.card_mib
    cdef const int[::1] slots = nodes.free_pods
    cdef const long long[::1] free_cpu = nodes.free_cpu_milli, free_memory = nodes.free_memory_mib
    cdef const unsigned long long[::1] tags = baseline.tags
    cdef int[::1] score = scores.score
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef long long cpu = demand.cpu_milli, memory = demand.memory_mib
    cdef int rule = baseline.rule, need, c, idle, ix, at_card, stride = cards.stride
    cdef unsigned long long tag
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            at_card = ix * stride
            score[ix] = -1
            need = card_need(milli, want_mib, mib[ix])
            if slots[ix] < 1 or (cpu > 0 and free_cpu[ix] < cpu):
                continue
            if memory > 0 and free_memory[ix] < memory:
                continue
            if not cards_fit(&free[at_card], n_cards[ix], devices, need):
                continue
            idle = 0
            for c in range(n_cards[ix]):
                idle += free[at_card + c] if free[at_card + c] > 0 else 0
            if rule == _DOT_PRODUCT:
                score[ix] = dot_product(cpu, devices * need, free_cpu[ix], idle)
            elif rule == _CLUSTERING:
                tag = <unsigned long long>1 << (devices if need == WHOLE else 0)
                score[ix] = clustering(tag if devices > 0 else 0, tags[ix], idle)
            elif rule == _PACKING:
                score[ix] = packing(&free[at_card], n_cards[ix], devices, need)
            else:
                score[ix] = best_fit(free_cpu[ix] - cpu, idle - devices * need)
            # Nodes and pods beyond the sizes that the scores are made for are all the same to them.
            score[ix] = max(score[ix], 0)

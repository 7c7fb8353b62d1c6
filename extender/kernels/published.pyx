# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""FGD as its authors' simulator adds it up, in doubles and in their order. Twin: `published_twin`.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and their simulator's `frag.go` and
`fgd_score.go`. Where a placement changes nothing their sums before and after still differ in the
last bit, which makes a score of 49 or 50: so rounding decides who is first, and results can only be
held against theirs with the same rounding. Only replays use this; `fragments` adds exactly.
Arguments are as there, but for `published`, a Published of `extender.kernels.typical`.
"""

from libc.math cimport exp

from extender.kernels.cards cimport BINPACK, WHOLE, card_need, cards_fit, cards_pick

cdef enum:
    MOST_CARDS = 64


cdef class _Measure:
    """Views on the typical pods."""
    cdef const long long[::1] cpu_milli
    cdef const int[::1] devices, milli
    cdef const unsigned long long[::1] models
    cdef const double[::1] share

    def __cinit__(self, published):
        self.cpu_milli, self.devices = published.cpu_milli, published.devices
        self.milli, self.models, self.share = published.milli, published.models, published.share

    cdef double waste(self, const int* free, int n_cards, int model, long long cpu) noexcept nogil:
        """Milli of one node that typical pods can't use, by what they lack, then added up."""
        cdef double both = 0, gpu = 0, host = 0, no_gpu = 0, no_gpu_host = 0, no_access = 0
        cdef int t, c, idle = 0, fitting, small
        cdef bint has_cpu
        for c in range(n_cards):
            idle += free[c] if free[c] > 0 else 0
        for t in range(<int>self.share.shape[0]):
            has_cpu = cpu >= self.cpu_milli[t]
            if self.devices[t] == 0:
                if has_cpu:
                    no_gpu += self.share[t] * idle
                else:
                    no_gpu_host += self.share[t] * idle
                continue
            if not (self.models[t] >> model) & 1:
                no_access += self.share[t] * idle
                continue
            fitting = small = 0
            for c in range(n_cards):
                fitting += free[c] >= self.milli[t]
                small += free[c] if 0 < free[c] < self.milli[t] else 0
            if fitting >= self.devices[t]:
                if has_cpu:
                    gpu += self.share[t] * small
                else:
                    host += self.share[t] * idle
            elif has_cpu:
                gpu += self.share[t] * idle
            else:
                both += self.share[t] * idle
        return both + gpu + host + no_gpu + no_gpu_host + no_access


def measure_nodes(nodes, published, const int[::1] candidates):
    """Set `published.waste[ix]` of every candidate (int32[m], node ix) to its milli now."""
    cdef _Measure measure = _Measure(published)
    cdef const int[::1] free = nodes.cards.card_free, n_cards = nodes.cards.n_cards
    cdef const int[::1] model = published.model_ix
    cdef const long long[::1] cpu = nodes.free_cpu_milli
    cdef double[::1] waste = published.waste
    cdef int ix, stride = nodes.cards.stride
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            waste[ix] = measure.waste(&free[ix * stride], n_cards[ix], model[ix], cpu[ix])


def score_nodes(nodes, published, demand, const int[::1] candidates, scores):
    """Set score and card of every candidate for one pod of `demand` as `fragments.score_nodes`.

    The score is trunc(100 / (1 + e^(-fall / 1000))) of the fall in milli, in doubles.
    """
    cdef _Measure measure = _Measure(published)
    cdef object cards = nodes.cards
    cdef const int[::1] free = cards.card_free, n_cards = cards.n_cards, mib = cards.card_mib
    cdef const int[::1] slots = nodes.free_pods, model = published.model_ix
    cdef const long long[::1] free_cpu = nodes.free_cpu_milli, free_memory = nodes.free_memory_mib
    cdef const double[::1] waste = published.waste
    cdef int[::1] score = scores.score, card = scores.card
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef long long cpu = demand.cpu_milli, memory = demand.memory_mib, left
    cdef int need, rated, c, n, ix, stride = cards.stride
    cdef int held[MOST_CARDS]
    cdef unsigned long long taken
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            n = n_cards[ix]
            score[ix] = card[ix] = -1
            need = card_need(milli, want_mib, mib[ix])
            if slots[ix] < 1 or (cpu > 0 and free_cpu[ix] < cpu):
                continue
            if memory > 0 and free_memory[ix] < memory:
                continue
            if not cards_fit(&free[ix * stride], n, devices, need):
                continue
            left = free_cpu[ix] - cpu
            for c in range(n):
                held[c] = free[ix * stride + c]
            if devices != 1 or need == WHOLE:
                taken = cards_pick(held, n, devices, need, BINPACK)
                for c in range(n):
                    held[c] -= need if (taken >> c) & 1 else 0
                score[ix] = rate(waste[ix], measure.waste(held, n, model[ix], left))
                continue
            for c in range(n):
                if held[c] < need or (c > 0 and held[c] == held[c - 1]):
                    continue
                held[c] -= need
                rated = rate(waste[ix], measure.waste(held, n, model[ix], left))
                held[c] += need
                if rated > score[ix]:
                    score[ix] = rated
                    card[ix] = c


cdef inline int rate(double before, double after) noexcept nogil:
    return <int>(1 / (1 + exp(-((before - after) / 1000))) * 100)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# distutils: extra_compile_args = -ffp-contract=off
"""FGD as its authors' simulator adds it up, in doubles and in their order. Twin: `published_twin`.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and their simulator's `frag.go` and
`fgd_score.go`. Where a placement changes nothing their sums before and after still differ in the
last bit, which makes a score of 49 or 50: so rounding decides who is first, and results can only be
held against theirs with the same rounding. Only replays use this; `fragments` adds exactly.
Arguments are as there, but for `published`, a Published of `extender.lab.openb.measures`.
"""

from libc.math cimport exp

from extender.kernels.ways cimport Fitting, rate_nodes


# The typical pods, one entry a type.
cdef struct Measure:
    int n_types
    const long long* cpu_milli
    const int* devices
    const int* milli
    const unsigned long long* models
    const double* share


# By what a place is rated; `model` and `waste` are by node.
cdef struct Rated:
    Measure of
    const int* model
    const double* waste


cdef int measure(Measure* of, published) except -1:
    """Fill `of` with views on `published`, which must outlive it."""
    cdef const long long[::1] cpu_milli = published.cpu_milli
    cdef const int[::1] devices = published.devices, milli = published.milli
    cdef const unsigned long long[::1] models = published.models
    cdef const double[::1] share = published.share
    of.n_types = <int>share.shape[0]
    if of.n_types:
        of.cpu_milli, of.devices, of.milli = &cpu_milli[0], &devices[0], &milli[0]
        of.models, of.share = &models[0], &share[0]
    return 0


cdef double waste_of(
    const Measure* of, const int* free, int n_cards, int model, long long cpu
) noexcept nogil:
    """Milli of one node that typical pods can't use, by what they lack, then added up."""
    cdef double both = 0, gpu = 0, host = 0, no_gpu = 0, no_gpu_host = 0, no_access = 0
    cdef int t, c, idle = 0, fitting, small
    cdef bint has_cpu
    for c in range(n_cards):
        idle += free[c] if free[c] > 0 else 0
    for t in range(of.n_types):
        has_cpu = cpu >= of.cpu_milli[t]
        if of.devices[t] == 0:
            if has_cpu:
                no_gpu += of.share[t] * idle
            else:
                no_gpu_host += of.share[t] * idle
            continue
        if not (of.models[t] >> model) & 1:
            no_access += of.share[t] * idle
            continue
        fitting = small = 0
        for c in range(n_cards):
            fitting += free[c] >= of.milli[t]
            small += free[c] if 0 < free[c] < of.milli[t] else 0
        if fitting >= of.devices[t]:
            if has_cpu:
                gpu += of.share[t] * small
            else:
                host += of.share[t] * idle
        elif has_cpu:
            gpu += of.share[t] * idle
        else:
            both += of.share[t] * idle
    return both + gpu + host + no_gpu + no_gpu_host + no_access


def measure_nodes(nodes, published, const int[::1] candidates):
    """Set `published.waste[ix]` of every candidate (int32[m], node ix) to its milli now."""
    cdef Measure of
    cdef const int[::1] free = nodes.cards.card_free, n_cards = nodes.cards.n_cards
    cdef const int[::1] model = published.model_ix
    cdef const long long[::1] cpu = nodes.free_cpu_milli
    cdef double[::1] waste = published.waste
    cdef int ix, stride = nodes.cards.stride
    cdef Py_ssize_t at
    measure(&of, published)
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            waste[ix] = waste_of(&of, &free[ix * stride], n_cards[ix], model[ix], cpu[ix])


def score_nodes(nodes, published, demand, const int[::1] candidates, scores):
    """Set score and card of every candidate for one pod of `demand` as `fragments.score_nodes`.

    The score is trunc(100 / (1 + e^(-fall / 1000))) of the fall in milli, in doubles.
    """
    cdef Rated by
    cdef const int[::1] model = published.model_ix
    cdef const double[::1] waste = published.waste
    if candidates.shape[0]:
        measure(&by.of, published)
        by.model, by.waste = &model[0], &waste[0]
        rate_nodes(nodes, demand, candidates, scores, rate, &by)


cdef int rate(const void* by, const Fitting* at, const int* left) noexcept nogil:
    cdef Rated* rated = <Rated*>by
    cdef double after = waste_of(&rated.of, left, at.n_cards, rated.model[at.ix], at.cpu_left)
    return <int>(1 / (1 + exp(-((rated.waste[at.ix] - after) / 1000))) * 100)

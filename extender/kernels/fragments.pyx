# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fragmentation: the idle GPU of nodes that expected pods cannot use, and the best node by it.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023; `extender.kernels.typical` defines
the tables and the measure. `nodes` is a NodeTable, `fragments` a Fragments, `scores` a Scores; the
caller vouches that they are consistent. It keeps `fragments.waste` and the scores of every demand,
and recomputes both for changed nodes. Twin: `fragments_twin`.
"""

from extender.kernels.waste cimport MOST_TYPES, Expected, waste_of
from extender.kernels.ways cimport Fitting, rate_nodes


# The inputs of `rate`; `model` and `waste` are by node.
cdef struct Rated:
    Expected of
    const int* model
    const long long* waste
    const long long* steps
    int n_steps


cdef int expect(Expected* of, typical) except -1:
    """Fill `of` with views on `typical`, which must outlive it."""
    cdef const long long[::1] need_cpu = typical.cpu_milli, chance = typical.chance
    cdef const int[::1] devices = typical.devices, milli = typical.milli, weight = typical.weight
    cdef const unsigned long long[::1] models = typical.models
    cdef int t
    of.n_types = <int>weight.shape[0]
    if not 0 < of.n_types <= MOST_TYPES:
        raise ValueError(f"{of.n_types} typical pods; between 1 and {MOST_TYPES} are possible")
    of.need_cpu, of.devices, of.milli = &need_cpu[0], &devices[0], &milli[0]
    of.weight, of.models, of.chance = &weight[0], &models[0], &chance[0]
    of.total = <int>chance.shape[0] - 1
    of.is_deep, of.is_one_draw = typical.is_deep, typical.draws == 1
    for t in range(of.n_types):
        of.order[t] = t
    return 0


cdef int rate(const void* by, const Fitting* at, const int* left) noexcept nogil:
    """How many of the ascending steps the decrease of the node's fragmentation reaches."""
    cdef Rated* rated = <Rated*>by
    cdef int low = 0, high = rated.n_steps, middle
    cdef long long fall = rated.waste[at.ix]
    fall -= waste_of(&rated.of, left, at.n_cards, rated.model[at.ix], at.cpu_left)
    while low < high:
        middle = (low + high) // 2
        if rated.steps[middle] <= fall:
            low = middle + 1
        else:
            high = middle
    return low


def measure_nodes(nodes, fragments, const int[::1] candidates):
    """Set `fragments.waste[ix]` of each candidate (int32[m], node ix) to its fragmentation.

    In units of 1/`fragments.typical.unit` milli. Cost: cards times types for each candidate.
    """
    cdef Expected of
    cdef const int[::1] free = nodes.cards.card_free, n_cards = nodes.cards.n_cards
    cdef const int[::1] model = fragments.model_ix
    cdef const long long[::1] cpu = nodes.free_cpu_milli
    cdef long long[::1] waste = fragments.waste
    cdef int ix, stride = nodes.cards.stride
    cdef Py_ssize_t at
    expect(&of, fragments.typical)
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            waste[ix] = waste_of(&of, &free[ix * stride], n_cards[ix], model[ix], cpu[ix])


def score_nodes(nodes, fragments, demand, const int[::1] candidates, scores):
    """Set the score of every candidate for one pod of `demand`; higher is better.

    `scores.score[ix]` is how many of `typical.steps` the decrease of the node's fragmentation
    reaches, or -1 if the pod does not fit. For a fraction of one card each card is tried, and
    `scores.card[ix]` is the best one, ties to the first. Other pods get bin-pack's cards, and -1.
    """
    cdef Rated by
    cdef const int[::1] model = fragments.model_ix
    cdef const long long[::1] waste = fragments.waste, steps = fragments.typical.steps
    if candidates.shape[0]:
        expect(&by.of, fragments.typical)
        by.model, by.waste = &model[0], &waste[0]
        by.steps, by.n_steps = &steps[0], <int>steps.shape[0]
        rate_nodes(nodes, demand, candidates, scores, rate, &by)


def best_of(scores, const int[::1] candidates, const int[::1] model_ix, const int[::1] cost):
    """The candidate with the highest score less the cost of its card model, or -1 if none fits.

    `model_ix` is int32[n] as in Fragments, `cost` int32[64] in points of the score. Among equals
    the first candidate wins.
    """
    cdef const int[::1] score = scores.score
    cdef long long value, best_value = 0
    cdef int ix, best = -1
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            value = <long long>score[ix] - cost[model_ix[ix]]
            if score[ix] >= 0 and (best < 0 or value > best_value):
                best_value = value
                best = ix
    return best

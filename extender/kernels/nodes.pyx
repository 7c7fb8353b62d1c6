# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which nodes fit a demand, how well, and which is best. Twin: `nodes_twin`.

`cards` is a CardTable and `nodes` a NodeTable (`extender.state.nodes`), `demand` a Demand
(`extender.api.demand`); the caller vouches that they are consistent and that `out` and
`candidates` belong to the same table. Cost: one pass over the cards, no allocation.
"""

from extender.kernels.cards cimport (
    card_need, cards_fit, cards_pick, cards_room, cards_score, host_score,
)

#: Placement rules, as in `cards.pxd`.
BINPACK, SPREAD, BEST_FIT, FIRST_FIT = range(4)


def fit_nodes(cards, demand, unsigned char[::1] out):
    """Set out[ix] (uint8[n]) to 1 if `demand` fits the node's cards, else to 0."""
    cdef const int[::1] free = cards.card_free
    cdef const int[::1] mib = cards.card_mib
    cdef const int[::1] n_cards = cards.n_cards
    cdef int stride = cards.stride
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef Py_ssize_t ix, n = n_cards.shape[0]
    with nogil:
        for ix in range(n):
            out[ix] = cards_fit(
                &free[ix * stride], n_cards[ix], devices, card_need(milli, want_mib, mib[ix])
            )


def score_nodes(cards, demand, int rule, int[::1] out):
    """Set out[ix] (int32[n]) to 0..1_000_000 if `demand` fits the node's cards, else to -1.

    Bin-pack prefers the node that is fullest afterwards. A fraction prefers above all a node where
    it fits partly used cards, the tighter the better. Spread prefers the emptiest node, then the
    emptiest card. Best-fit prefers the node with the least left over, first-fit has no preference.
    Pods without GPUs prefer nodes without cards.
    """
    cdef const int[::1] free = cards.card_free
    cdef const int[::1] mib = cards.card_mib
    cdef const int[::1] n_cards = cards.n_cards
    cdef const int[::1] capacity = cards.capacity_milli
    cdef int stride = cards.stride
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef int need
    cdef Py_ssize_t ix, n = n_cards.shape[0]
    with nogil:
        for ix in range(n):
            need = card_need(milli, want_mib, mib[ix])
            if cards_fit(&free[ix * stride], n_cards[ix], devices, need):
                out[ix] = cards_score(
                    &free[ix * stride], n_cards[ix], capacity[ix], devices, need, rule
                )
            else:
                out[ix] = -1


def best_node(nodes, demand, const int[::1] candidates, int rule):
    """The best of `candidates` (int32[m], node ix) on which `demand` fits, or -1.

    Cards, CPU, memory and a pod slot must fit. Pods without GPUs are scored by the CPU and memory
    left on the node. Among equal scores the first candidate wins.
    """
    cdef object cards = nodes.cards
    cdef const int[::1] free = cards.card_free
    cdef const int[::1] mib = cards.card_mib
    cdef const int[::1] n_cards = cards.n_cards
    cdef const int[::1] capacity = cards.capacity_milli
    cdef const long long[::1] free_cpu = nodes.free_cpu_milli
    cdef const long long[::1] free_memory = nodes.free_memory_mib
    cdef const long long[::1] all_cpu = nodes.cpu_milli
    cdef const long long[::1] all_memory = nodes.memory_mib
    cdef const int[::1] free_pods = nodes.free_pods
    cdef int stride = cards.stride
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef long long cpu = demand.cpu_milli, memory = demand.memory_mib
    cdef int need, score, best_score = -1, best = -1, ix
    cdef Py_ssize_t at, n = candidates.shape[0]
    with nogil:
        # Invariant: `best` is the first with the best score in candidates[:at].
        for at in range(n):
            ix = candidates[at]
            if free_pods[ix] < 1 or (cpu > 0 and free_cpu[ix] < cpu):
                continue
            if memory > 0 and free_memory[ix] < memory:
                continue
            need = card_need(milli, want_mib, mib[ix])
            if devices == 0:
                score = host_score(
                    free_cpu[ix] - cpu, all_cpu[ix], free_memory[ix] - memory, all_memory[ix],
                    n_cards[ix] > 0, rule,
                )
            elif cards_fit(&free[ix * stride], n_cards[ix], devices, need):
                score = cards_score(
                    &free[ix * stride], n_cards[ix], capacity[ix], devices, need, rule
                )
            else:
                continue
            if score > best_score:
                best_score = score
                best = ix
    return best


def pick_cards(cards, int ix, demand, int rule):
    """Indices of the cards of node `ix` for `demand`, ascending; empty if it does not fit.

    Bin-pack and best-fit use the fullest cards that fit, spread the emptiest, first-fit the first.
    A whole GPU needs an idle card. Among equals the lowest index wins.
    """
    cdef const int[::1] free = cards.card_free
    cdef int n_cards = cards.n_cards[ix], stride = cards.stride, c
    cdef int need = card_need(demand.milli, demand.gpu_memory_mib, cards.card_mib[ix])
    cdef unsigned long long taken
    taken = cards_pick(&free[ix * stride], n_cards, demand.devices, need, rule)
    return [c for c in range(n_cards) if (taken >> c) & 1]


def count_room(nodes, demand, const int[::1] candidates, int most, int[::1] out):
    """Set out[i] (int32[m]) to how many such pods fit node `candidates[i]`, at most `most`."""
    cdef object cards = nodes.cards
    cdef const int[::1] free = cards.card_free, mib = cards.card_mib, n_cards = cards.n_cards
    cdef const int[::1] slots = nodes.free_pods
    cdef const long long[::1] free_cpu = nodes.free_cpu_milli, free_memory = nodes.free_memory_mib
    cdef int devices = demand.devices, milli = demand.milli, want_mib = demand.gpu_memory_mib
    cdef int stride = cards.stride, ix
    cdef long long cpu = demand.cpu_milli, memory = demand.memory_mib, fitting
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            ix = candidates[at]
            fitting = max(0, min(most, slots[ix]))
            if cpu > 0:
                fitting = min(fitting, max(<long long>0, free_cpu[ix]) // cpu)
            if memory > 0:
                fitting = min(fitting, max(<long long>0, free_memory[ix]) // memory)
            out[at] = cards_room(
                &free[ix * stride], n_cards[ix], devices, card_need(milli, want_mib, mib[ix]),
                <int>fitting,
            )

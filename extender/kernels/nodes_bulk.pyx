# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Places for many pods that ask for the same: how many each node takes, and which get them.

Arguments are as in `nodes`; `out_ix` (int32[n]) and `out_cards` (uint64[n], a set of card indices)
are as long as there are pods. The table is written to while a call runs, and is as it was when it
returns. Twin: `nodes_bulk_twin`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.cards cimport (
    card_need, cards_fit, cards_pick, cards_room, cards_score, host_score,
)


cdef class _Table:
    """Views on the columns of a NodeTable, and one pod's demand; a hold is taken and given back."""
    cdef int[::1] free, slots
    cdef const int[::1] mib, n_cards, capacity
    cdef long long[::1] free_cpu, free_memory
    cdef const long long[::1] all_cpu, all_memory
    cdef int stride, devices, milli, want_mib, rule
    cdef long long cpu, memory

    def __cinit__(self, nodes, demand, int rule):
        cards = nodes.cards
        self.free, self.mib, self.n_cards = cards.card_free, cards.card_mib, cards.n_cards
        self.capacity, self.stride, self.slots = cards.capacity_milli, cards.stride, nodes.free_pods
        self.free_cpu, self.all_cpu = nodes.free_cpu_milli, nodes.cpu_milli
        self.free_memory, self.all_memory = nodes.free_memory_mib, nodes.memory_mib
        self.devices, self.milli, self.rule = demand.devices, demand.milli, rule
        self.want_mib = demand.gpu_memory_mib
        self.cpu, self.memory = demand.cpu_milli, demand.memory_mib

    cdef int room(self, int ix, int most) noexcept nogil:
        """How many of the pods the node takes, at most `most`."""
        cdef long long fitting = min(most, self.slots[ix])
        if self.cpu > 0:
            fitting = min(fitting, max(<long long>0, self.free_cpu[ix]) // self.cpu)
        if self.memory > 0:
            fitting = min(fitting, max(<long long>0, self.free_memory[ix]) // self.memory)
        if fitting <= 0:
            return 0
        return cards_room(
            &self.free[ix * self.stride], self.n_cards[ix], self.devices,
            card_need(self.milli, self.want_mib, self.mib[ix]), <int>fitting,
        )

    cdef int score(self, int ix) noexcept nogil:
        """As in `nodes.best_node`; -1 where the pod does not fit."""
        cdef int need = card_need(self.milli, self.want_mib, self.mib[ix])
        if self.slots[ix] < 1 or (self.cpu > 0 and self.free_cpu[ix] < self.cpu):
            return -1
        if self.memory > 0 and self.free_memory[ix] < self.memory:
            return -1
        if self.devices == 0:
            return host_score(
                self.free_cpu[ix] - self.cpu, self.all_cpu[ix], self.free_memory[ix] - self.memory,
                self.all_memory[ix], self.n_cards[ix] > 0, self.rule,
            )
        if not cards_fit(&self.free[ix * self.stride], self.n_cards[ix], self.devices, need):
            return -1
        return cards_score(
            &self.free[ix * self.stride], self.n_cards[ix], self.capacity[ix], self.devices, need,
            self.rule,
        )

    cdef unsigned long long take(self, int ix) noexcept nogil:
        """Hold a place for one pod on the node, which has it; returns its cards."""
        cdef int need = card_need(self.milli, self.want_mib, self.mib[ix])
        cdef unsigned long long taken = cards_pick(
            &self.free[ix * self.stride], self.n_cards[ix], self.devices, need, self.rule
        )
        self.change(ix, taken, -1)
        return taken

    cdef void change(self, int ix, unsigned long long taken, int sign) noexcept nogil:
        """Take (-1) or give back (1) one pod's place."""
        cdef int c, need = card_need(self.milli, self.want_mib, self.mib[ix])
        for c in range(self.n_cards[ix]):
            if (taken >> c) & 1:
                self.free[ix * self.stride + c] += sign * need
        self.free_cpu[ix] += sign * self.cpu
        self.free_memory[ix] += sign * self.memory
        self.slots[ix] += sign


def count_room(nodes, demand, const int[::1] candidates, int most, int[::1] out):
    """Set out[i] (int32[m]) to how many such pods node `candidates[i]` takes, at most `most`."""
    cdef _Table table = _Table(nodes, demand, 0)
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            out[at] = table.room(candidates[at], most)


def fill_nodes(
    nodes, demand, const int[::1] candidates, int rule, int[::1] out_ix,
    unsigned long long[::1] out_cards,
):
    """Give pod after pod the best node, as `nodes.best_node` does; returns how many have one.

    Cost: one pass over the cards, and one over the candidates' scores for every pod.
    """
    cdef _Table table = _Table(nodes, demand, rule)
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
    cdef _Table table = _Table(nodes, demand, rule)
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

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How many pods that ask for the same each node takes, and places held for them. Twin:
`holds_twin`.

Arguments are as in `nodes`. A caller that holds places in a table gives them back before another
one reads it.
"""

from extender.kernels.cards cimport (
    card_need, cards_fit, cards_pick, cards_room, cards_score, host_score,
)


def count_room(nodes, demand, const int[::1] candidates, int most, int[::1] out):
    """Set out[i] (int32[m]) to how many such pods node `candidates[i]` takes, at most `most`."""
    cdef Holds holds = Holds(nodes, demand, 0)
    cdef Py_ssize_t at
    with nogil:
        for at in range(candidates.shape[0]):
            out[at] = holds.room(candidates[at], most)


cdef class Holds:
    """Views on the columns of a NodeTable, one pod's demand and a rule of placement."""

    def __cinit__(self, nodes, demand, int rule):
        cards = nodes.cards
        self.free, self.mib, self.n_cards = cards.card_free, cards.card_mib, cards.n_cards
        self.capacity, self.stride, self.slots = cards.capacity_milli, cards.stride, nodes.free_pods
        self.free_cpu, self.all_cpu = nodes.free_cpu_milli, nodes.cpu_milli
        self.free_memory, self.all_memory = nodes.free_memory_mib, nodes.memory_mib
        self.devices, self.milli, self.rule = demand.devices, demand.milli, rule
        self.want_mib = demand.gpu_memory_mib
        self.cpu, self.memory = demand.cpu_milli, demand.memory_mib

    def has_room(self, const int[::1] candidates):
        """Whether any of the nodes (int32[m], ix) takes one of the pods."""
        cdef Py_ssize_t at
        for at in range(candidates.shape[0]):
            if self.room(candidates[at], 1) > 0:
                return True
        return False

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

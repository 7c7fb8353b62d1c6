# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""One node as it is with some of its pods gone, and whether one more fits. Twin: `vacancy_twin`.

A `Vacancy` is bound to a NodeTable, the pods of a Herd (`extender.policy.preemption.candidates`)
and one pod's demand, of which `extra_need` (int64[k]) is counted one by one; `extra_free` and
`extra_held` are the same by node and by pod. It reads them anew for every node and changes none.
"""

from array import array

from extender.kernels.cards cimport card_need, cards_fit, cards_room


cdef class Vacancy:
    def __cinit__(self, nodes, herd, demand, extra_need, extra_free, extra_held):
        cards = nodes.cards
        self.free, self.mib, self.n_cards = cards.card_free, cards.card_mib, cards.n_cards
        self.stride, self.slots = cards.stride, nodes.free_pods
        self.free_cpu, self.free_memory = nodes.free_cpu_milli, nodes.free_memory_mib
        self.start, self.card_start, self.card_ix = herd.start, herd.card_start, herd.card_ix
        self.card_milli, self.amounts = herd.card_milli, herd.amounts
        self.devices, self.milli = demand.devices, demand.milli
        self.want_mib, self.cpu = demand.gpu_memory_mib, demand.cpu_milli
        self.memory = demand.memory_mib
        self.extra_need, self.extra_free, self.extra_held = extra_need, extra_free, extra_held
        self.n_extra = <int>self.extra_need.shape[0]
        self.left_extra = array("q", bytes(8 * self.n_extra))
        self.is_gone = bytearray(herd.most_pods + 1)

    def room(self, int ix, const int[::1] gone, int most):
        """How many such pods node `ix` takes with the pods `gone`, which are on it; or `most`."""
        cdef Py_ssize_t at
        cdef int n
        self.load(ix)
        for at in range(gone.shape[0]):
            self.leave(gone[at], 1)
        n = self.n_fitting(most)
        for at in range(gone.shape[0]):
            self.leave(gone[at], -1)
        return n

    cdef void load(self, int ix) noexcept nogil:
        """Look at the node as it is; what had left another must be back there."""
        cdef int c
        self.cards, self.first, self.last = self.n_cards[ix], self.start[ix], self.start[ix + 1]
        self.need = card_need(self.milli, self.want_mib, self.mib[ix])
        for c in range(self.cards):
            self.card_free[c] = self.free[ix * self.stride + c]
        self.left_cpu, self.left_memory = self.free_cpu[ix], self.free_memory[ix]
        self.left_slots = self.slots[ix]
        for c in range(self.n_extra):
            self.left_extra[c] = self.extra_free[ix * self.n_extra + c]

    cdef void leave(self, int p, int sign) noexcept nogil:
        """What the pod holds is free (1), or held again (-1)."""
        cdef int at
        for at in range(self.card_start[p], self.card_start[p + 1]):
            if self.card_ix[at] < self.cards:
                self.card_free[self.card_ix[at]] += sign * self.card_milli[at]
        self.left_cpu += sign * self.amounts[3 * p + 1]
        self.left_memory += sign * self.amounts[3 * p + 2]
        self.left_slots += sign
        for at in range(self.n_extra):
            self.left_extra[at] += sign * self.extra_held[p * self.n_extra + at]
        self.is_gone[p - self.first] = sign > 0

    cdef bint has_cards(self) noexcept nogil:
        return cards_fit(&self.card_free[0], self.cards, self.devices, self.need)

    cdef bint has_host(self) noexcept nogil:
        """Whether there is enough of everything but cards."""
        cdef int at
        for at in range(self.n_extra):
            if self.left_extra[at] < self.extra_need[at]:
                return False
        return (
            self.left_slots >= 1 and (self.cpu == 0 or self.left_cpu >= self.cpu)
            and (self.memory == 0 or self.left_memory >= self.memory)
        )

    cdef bint fits(self) noexcept nogil:
        return self.has_cards() and self.has_host()

    cdef bint helps(self, int p, int card) noexcept nogil:
        """Whether the pod holds any of the card, or (-1) of what the host lacks."""
        cdef int at
        if card >= 0:
            for at in range(self.card_start[p], self.card_start[p + 1]):
                if self.card_ix[at] == card and self.card_milli[at] > 0:
                    return True
            return False
        for at in range(self.n_extra):
            if self.left_extra[at] < self.extra_need[at] and (
                self.extra_held[p * self.n_extra + at] > 0
            ):
                return True
        return (
            self.left_slots < 1
            or (0 < self.cpu > self.left_cpu and self.amounts[3 * p + 1] > 0)
            or (0 < self.memory > self.left_memory and self.amounts[3 * p + 2] > 0)
        )

    cdef int n_fitting(self, int most) noexcept nogil:
        """How many of the one more there is room for, at most `most`."""
        cdef int at
        cdef long long fitting = min(<long long>most, max(<long long>0, self.left_slots))
        if self.cpu > 0:
            fitting = min(fitting, max(<long long>0, self.left_cpu) // self.cpu)
        if self.memory > 0:
            fitting = min(fitting, max(<long long>0, self.left_memory) // self.memory)
        for at in range(self.n_extra):
            fitting = min(fitting, max(<long long>0, self.left_extra[at]) // self.extra_need[at])
        return cards_room(
            &self.card_free[0], self.cards, self.devices, self.need, <int>fitting
        )

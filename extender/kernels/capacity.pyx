# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The free capacity of one node without some of its pods, and whether a pending pod fits."""

from array import array

from extender.kernels.cards cimport card_need, cards_fit, cards_room


cdef inline int thousandths(long long held, long long lack) noexcept nogil:
    """The part of `lack` (> 0) that `held` covers, in thousandths rounded up."""
    return <int>((min(held, lack) * 1000 + lack - 1) // lack)


cdef class Capacity:
    """The free capacity of the loaded node without its evicted and moved pods."""

    def __cinit__(self, nodes, pods, demand, counted_need, counted_free, counted_held):
        cards = nodes.cards
        self.free, self.mib, self.n_cards = cards.card_free, cards.card_mib, cards.n_cards
        self.stride, self.slots = cards.stride, nodes.free_pods
        self.free_cpu, self.free_memory = nodes.free_cpu_milli, nodes.free_memory_mib
        self.start, self.card_start, self.card_ix = pods.start, pods.card_start, pods.card_ix
        self.card_milli, self.amounts = pods.card_milli, pods.amounts
        self.devices, self.milli = demand.devices, demand.milli
        self.want_mib, self.cpu = demand.gpu_memory_mib, demand.cpu_milli
        self.memory, self.counted_need = demand.memory_mib, counted_need
        self.counted_free, self.counted_held = counted_free, counted_held
        self.n_counted = <int>self.counted_need.shape[0]
        self.left_counted = array("q", bytes(8 * self.n_counted))
        self.is_gone = bytearray(pods.most_pods + 1)

    cdef void load(self, int ix) noexcept nogil:
        """Load node `ix` with all its pods; no pod of the previous node may still be gone."""
        cdef int c
        self.cards, self.first, self.last = self.n_cards[ix], self.start[ix], self.start[ix + 1]
        self.need = card_need(self.milli, self.want_mib, self.mib[ix])
        for c in range(self.cards):
            self.card_free[c] = self.free[ix * self.stride + c]
        self.left_cpu, self.left_memory = self.free_cpu[ix], self.free_memory[ix]
        self.left_slots = self.slots[ix]
        for c in range(self.n_counted):
            self.left_counted[c] = self.counted_free[ix * self.n_counted + c]

    cdef void leave(self, int p, int sign) noexcept nogil:
        """Free what the pod holds (1), or hold it again (-1)."""
        cdef int at
        for at in range(self.card_start[p], self.card_start[p + 1]):
            if self.card_ix[at] < self.cards:
                self.card_free[self.card_ix[at]] += sign * self.card_milli[at]
        self.left_cpu += sign * self.amounts[3 * p + 1]
        self.left_memory += sign * self.amounts[3 * p + 2]
        self.left_slots += sign
        for at in range(self.n_counted):
            self.left_counted[at] += sign * self.counted_held[p * self.n_counted + at]
        self.is_gone[p - self.first] = sign > 0

    cdef int n_free_cards(self) noexcept nogil:
        """The number of cards with enough free, at most as many as the pending pod requests."""
        cdef int c, n = 0
        for c in range(self.cards):
            n += self.card_free[c] >= self.need
        return min(n, self.devices)

    cdef bint has_cards(self) noexcept nogil:
        return cards_fit(&self.card_free[0], self.cards, self.devices, self.need)

    cdef bint has_host(self) noexcept nogil:
        """Whether everything but cards is sufficient."""
        cdef int at
        for at in range(self.n_counted):
            if self.left_counted[at] < self.counted_need[at]:
                return False
        return (
            self.left_slots >= 1 and (self.cpu == 0 or self.left_cpu >= self.cpu)
            and (self.memory == 0 or self.left_memory >= self.memory)
        )

    cdef int part(self, int p, int card) noexcept nogil:
        """The part of the card's lack that the pod holds, in thousandths rounded up; for card -1
        the mean over all other resources that are short."""
        cdef int at, n = 0
        cdef long long total = 0
        if card >= 0:
            for at in range(self.card_start[p], self.card_start[p + 1]):
                if self.card_ix[at] == card:
                    total += self.card_milli[at]
            return thousandths(total, self.need - self.card_free[card])
        for at in range(self.n_counted):
            if self.left_counted[at] < self.counted_need[at]:
                n += 1
                total += thousandths(
                    self.counted_held[p * self.n_counted + at],
                    self.counted_need[at] - self.left_counted[at],
                )
        if self.left_slots < 1:
            n, total = n + 1, total + thousandths(1, 1 - self.left_slots)
        if 0 < self.cpu > self.left_cpu:
            n += 1
            total += thousandths(self.amounts[3 * p + 1], self.cpu - self.left_cpu)
        if 0 < self.memory > self.left_memory:
            n += 1
            total += thousandths(self.amounts[3 * p + 2], self.memory - self.left_memory)
        return <int>((total + n - 1) // n)

    cdef int n_fitting(self, int most) noexcept nogil:
        """How many pending pods of this kind fit, at most `most`."""
        cdef int at
        cdef long long fitting = min(<long long>most, max(<long long>0, self.left_slots))
        if self.cpu > 0:
            fitting = min(fitting, max(<long long>0, self.left_cpu) // self.cpu)
        if self.memory > 0:
            fitting = min(fitting, max(<long long>0, self.left_memory) // self.memory)
        for at in range(self.n_counted):
            fitting = min(
                fitting, max(<long long>0, self.left_counted[at]) // self.counted_need[at]
            )
        return cards_room(
            &self.card_free[0], self.cards, self.devices, self.need, <int>fitting
        )

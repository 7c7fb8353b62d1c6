# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whether a pod may leave, and at what price, after those that are chosen. Twin: `appraisal_twin`.

An `Appraisal` is bound to a herd and the terms on which its pods may leave
(`extender.policy.preemption.candidates` and `eligibility` describe the arrays); it reads them anew
every time and changes none. A pod moves where it may, else it stops: alone while its workload has
surplus, else the whole workload does.
"""

from array import array

from extender.kernels.costs cimport (
    CORE, FOLLOWER, MOVE, SINGLE, Cost, Entry, high_of, low_of, moved_of, no_cost,
)


cdef class Appraisal:
    def __cinit__(self, herd, terms):
        n_workloads = len(herd.surplus)
        self.owner, self.turn, self.shape = herd.owner, herd.turn, herd.shape
        self.amounts, self.lost = herd.amounts, herd.lost
        self.is_here, self.is_core, self.may_move = herd.is_here, herd.is_core, herd.may_move
        self.surplus, self.priority, self.queue = herd.surplus, herd.priority, herd.queue
        self.rank = herd.rank
        self.whole_lost, self.whole_amounts = herd.whole_lost, herd.whole_amounts
        self.age, self.has = herd.age, herd.has
        self.is_stuck, self.is_safe, self.is_mobile = herd.is_stuck, terms.is_safe, terms.is_mobile
        self.floors, self.path_start, self.path = terms.floors, terms.path_start, terms.path
        self.tiers, self.moves = terms.tiers, terms.moves
        self.below_priority, self.n_floors = terms.below_priority, <int>self.has.shape[0]
        self.taken = array("q", bytes(8 * self.n_floors))
        self.stopped_lost = array("q", bytes(8 * n_workloads))
        self.stopped_amounts = array("q", bytes(24 * n_workloads))
        self.n_stopped = array("i", bytes(4 * n_workloads))
        self.n_moved = array("i", bytes(4 * n_workloads))

    def price(self, int p, const int[::1] chosen):
        """(kind, high, moved, low) of pod p after those chosen left in this order, or None.

        The kinds are those of `costs.pxd`; each of `chosen` must be one that may leave by then.
        """
        cdef Entry entry
        cdef Py_ssize_t at
        answer = None
        entries = []
        for at in range(chosen.shape[0]):
            self.appraise(chosen[at], &entry)
            self.give(&entry, 1)
            entries.append(entry)
        if self.appraise(p, &entry):
            answer = (
                entry.kind, high_of(&entry.cost), moved_of(&entry.cost), low_of(&entry.cost)
            )
        for each in entries:
            entry = each
            self.give(&entry, -1)
        return answer

    cdef bint appraise(self, int p, Entry* entry) noexcept nogil:
        """Whether the pod may go, and at what price, after those that are chosen."""
        cdef int w = self.owner[p], queue, resource
        cdef bint is_core
        if not self.is_here[p] or self.priority[w] >= self.below_priority or self.is_safe[p] > 1:
            return False
        queue = self.queue[w]
        is_core = self.is_core[p] or self.n_stopped[w] >= self.surplus[w]
        if is_core and self.is_safe[p]:
            return False
        entry.pod, entry.is_tested, entry.cost = p, False, no_cost()
        for resource in range(3):
            entry.given[resource] = self.amounts[3 * p + resource]
        entry.cost.count, entry.cost.turn, entry.cost.age = 1, self.turn[p], self.age[w]
        if self.may_move[p] and self.moves[self.shape[p]] and self.is_mobile[queue]:
            entry.kind, entry.cost.moved_rank = MOVE, self.rank[w]
            if not is_core:
                entry.cost.moved = self.lost[p]
            elif not self.n_moved[w]:
                entry.cost.moved = self.whole_lost[w]
            return True
        entry.cost.rank = self.rank[w]
        if not is_core:
            entry.kind, entry.cost.lost = SINGLE, self.lost[p]
            return self.set_tier(queue, entry)
        if self.is_stuck[w]:
            return False
        entry.kind, entry.cost.is_whole = CORE, True
        entry.cost.lost = self.whole_lost[w] - self.stopped_lost[w]
        for resource in range(3):
            # Its surplus that is chosen is given already.
            entry.given[resource] = self.whole_amounts[3 * w + resource]
            entry.given[resource] -= self.stopped_amounts[3 * w + resource]
        return self.set_tier(queue, entry)

    cdef bint set_tier(self, int queue, Entry* entry) noexcept nogil:
        """Whether the queue is above its floors in something that is given."""
        cdef Cost* cost = &entry.cost
        cdef int tier, at, resource, spot
        cdef int first = self.path_start[queue], last = self.path_start[queue + 1]
        cdef long long above, least
        cdef bint is_open = False
        for tier in range(self.tiers[queue]):
            cost.is_below = 1
            for resource in range(3):
                if entry.given[resource] <= 0:
                    continue
                least = 0x7FFFFFFFFFFFFFFF
                for at in range(first, last):
                    spot = 3 * self.path[at] + resource
                    above = self.has[spot] - self.taken[spot]
                    least = min(least, above - self.floors[tier * self.n_floors + spot])
                if least > 0:
                    is_open = True
                    if entry.given[resource] <= least:
                        cost.is_below = 0
            if is_open or first == last:
                cost.tier = tier
                cost.is_below &= first < last
                return True
        return False

    cdef void give(self, const Entry* entry, int sign) noexcept nogil:
        """The pod is among those that are chosen (1), or not any more (-1)."""
        cdef int at, resource, queue, w = self.owner[entry.pod]
        if entry.kind == MOVE:
            self.n_moved[w] += sign
            return
        self.n_stopped[w] += sign
        self.stopped_lost[w] += sign * self.lost[entry.pod]
        if entry.kind == FOLLOWER:
            return
        queue = self.queue[w]
        for resource in range(3):
            if entry.kind != CORE:
                self.stopped_amounts[3 * w + resource] += sign * entry.given[resource]
            for at in range(self.path_start[queue], self.path_start[queue + 1]):
                self.taken[3 * self.path[at] + resource] += sign * entry.given[resource]

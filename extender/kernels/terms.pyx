# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which pods may be victims, the cost of each, and what their queues have left after them."""

from array import array

from extender.kernels.costs cimport (
    FOLLOWER, MOVE, SINGLE, WHOLE_WORKLOAD, Cost, Victim, no_cost,
)

cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class Terms:
    """Whether a pod may be a victim and at what cost, given the victims chosen so far.

    A pod is moved if it may be, else evicted: alone while its workload has surplus, else with the
    whole workload.
    """

    def __cinit__(self, pods, eligibility):
        n_workloads = len(pods.surplus)
        self.owner, self.turn, self.shape = pods.owner, pods.turn, pods.shape
        self.amounts, self.lost = pods.amounts, pods.lost
        self.is_here, self.is_core, self.may_move = pods.is_here, pods.is_core, pods.may_move
        self.surplus, self.priority, self.queue = pods.surplus, pods.priority, pods.queue
        self.rank, self.age, self.has = pods.rank, pods.age, pods.has
        self.whole_lost, self.whole_amounts = pods.whole_lost, pods.whole_amounts
        self.is_stuck, self.is_safe = pods.is_stuck, eligibility.is_safe
        self.is_mobile, self.moves = eligibility.is_mobile, eligibility.moves
        self.path_start, self.path = eligibility.path_start, eligibility.path
        self.tiers, self.floors = eligibility.tiers, eligibility.floors
        self.below_priority = eligibility.below_priority
        self.n_floors = <int>self.has.shape[0]
        self.taken = array("q", bytes(8 * self.n_floors))
        self.evicted_lost = array("q", bytes(8 * n_workloads))
        self.evicted_amounts = array("q", bytes(24 * n_workloads))
        self.n_evicted = array("i", bytes(4 * n_workloads))
        self.n_moved = array("i", bytes(4 * n_workloads))

    cdef bint appraise(self, int p, Victim* out) noexcept nogil:
        """Whether the pod may be a victim; sets `out` accordingly."""
        cdef int w = self.owner[p], queue = self.queue[w], resource
        cdef bint is_core = self.is_core[p] or self.n_evicted[w] >= self.surplus[w]
        if not self.is_here[p] or self.priority[w] >= self.below_priority:
            return False
        if self.is_safe[p] > 1 or (is_core and self.is_safe[p]):
            return False
        out.pod, out.cost = p, no_cost()
        for resource in range(3):
            out.given[resource] = self.amounts[3 * p + resource]
        out.cost.count, out.cost.turn, out.cost.age = 1, self.turn[p], self.age[w]
        if self.may_move[p] and self.moves[self.shape[p]] and self.is_mobile[queue]:
            out.kind, out.cost.moved_rank = MOVE, self.rank[w]
            if not is_core:
                out.cost.moved = self.lost[p]
            elif not self.n_moved[w]:
                out.cost.moved = self.whole_lost[w]
            return True
        out.cost.rank = self.rank[w]
        if not is_core:
            out.kind, out.cost.lost = SINGLE, self.lost[p]
            return self.set_tier(queue, out)
        if self.is_stuck[w]:
            return False
        out.kind, out.cost.is_whole = WHOLE_WORKLOAD, True
        out.cost.lost = self.whole_lost[w] - self.evicted_lost[w]
        for resource in range(3):
            # The amounts of surplus pods that are already victims are counted with them.
            out.given[resource] = self.whole_amounts[3 * w + resource]
            out.given[resource] -= self.evicted_amounts[3 * w + resource]
        return self.set_tier(queue, out)

    cdef bint set_tier(self, int queue, Victim* out) noexcept nogil:
        """Whether the queue is above its floors in a resource of the victim; sets the tier."""
        cdef Cost* cost = &out.cost
        cdef int tier, at, resource, spot
        cdef int first = self.path_start[queue], last = self.path_start[queue + 1]
        cdef long long least
        cdef bint is_open = False
        for tier in range(self.tiers[queue]):
            cost.is_below = 1
            for resource in range(3):
                if out.given[resource] <= 0:
                    continue
                least = NEVER
                for at in range(first, last):
                    spot = 3 * self.path[at] + resource
                    least = min(least, self.has[spot] - self.taken[spot]
                                - self.floors[tier * self.n_floors + spot])
                is_open |= least > 0
                if 0 < least >= out.given[resource]:
                    cost.is_below = 0
            if is_open or first == last:
                cost.tier = tier
                cost.is_below &= first < last
                return True
        return False

    cdef void give(self, const Victim* victim, int sign) noexcept nogil:
        """Count the victim (1), or undo this (-1)."""
        cdef int at, resource, queue, w = self.owner[victim.pod]
        if victim.kind == MOVE:
            self.n_moved[w] += sign
            return
        self.n_evicted[w] += sign
        self.evicted_lost[w] += sign * self.lost[victim.pod]
        if victim.kind == FOLLOWER:
            return
        queue = self.queue[w]
        for resource in range(3):
            if victim.kind == SINGLE:
                self.evicted_amounts[3 * w + resource] += sign * victim.given[resource]
            for at in range(self.path_start[queue], self.path_start[queue + 1]):
                self.taken[3 * self.path[at] + resource] += sign * victim.given[resource]

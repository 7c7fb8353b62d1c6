# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which pods leave a node so that one more pod fits, at the least cost. Twin: `node_victims_twin`.

The cards of a node are freed one after the other, each time the one that costs least per card; then
pods leave for what else the node lacks, the cheapest first. Finally the pods that are not needed
are kept, the most expensive first. Time per node: devices times cards times pods.

`NodeVictims` is bound to the arrays of `extender.policy.preemption.candidates` and `eligibility`
and of the node table. It reads them anew in every call and changes none.
"""

from array import array
from libc.stdlib cimport calloc, free as release

from extender.kernels.cards cimport card_need, cards_fit, cards_room
from extender.kernels.costs cimport (
    FOLLOWER, MOVE, SINGLE, WHOLE_WORKLOAD, Cost, Price, Victim, add_cost, is_cheaper, is_less,
    no_cost, per_card, price_of,
)

#: `high` of a node on which no eviction helps.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class Capacity:
    """What one node has free while some of its pods are gone, and whether the new pod fits."""
    # Columns of the node table, by node or card; `start` is where the pods of a node begin.
    cdef const int[::1] free, slots, mib, n_cards, start
    cdef const long long[::1] free_cpu, free_memory, counted_free
    # What pods hold: cards card_start[p]..card_start[p + 1], amounts (GPU, CPU, memory), and what
    # is counted one by one.
    cdef const int[::1] card_start, card_ix, card_milli
    cdef const long long[::1] amounts, counted_held
    # What the new pod asks for.
    cdef const long long[::1] counted_need
    cdef int stride, devices, milli, want_mib, n_counted
    cdef long long cpu, memory
    # The node that is loaded: pods first..last - 1; `need` is milli on each card.
    cdef int card_free[64]
    cdef int cards, need, first, last
    cdef long long left_cpu, left_memory, left_slots
    cdef long long[::1] left_counted
    # By pod, from `first` on.
    cdef unsigned char[::1] is_gone

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
        """Look at node `ix` as it is; all pods of the node before must be back."""
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
        """What the pod holds is free (1), or held again (-1)."""
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
        """How many cards have enough free, at most as many as the new pod wants."""
        cdef int c, n = 0
        for c in range(self.cards):
            n += self.card_free[c] >= self.need
        return min(n, self.devices)

    cdef bint has_cards(self) noexcept nogil:
        return cards_fit(&self.card_free[0], self.cards, self.devices, self.need)

    cdef bint has_host(self) noexcept nogil:
        """Whether there is enough of everything but cards."""
        cdef int at
        for at in range(self.n_counted):
            if self.left_counted[at] < self.counted_need[at]:
                return False
        return (
            self.left_slots >= 1 and (self.cpu == 0 or self.left_cpu >= self.cpu)
            and (self.memory == 0 or self.left_memory >= self.memory)
        )

    cdef bint helps(self, int p, int card) noexcept nogil:
        """Whether the pod holds any of the card, or (-1) of what the host lacks."""
        cdef int at
        if card >= 0:
            for at in range(self.card_start[p], self.card_start[p + 1]):
                if self.card_ix[at] == card and self.card_milli[at] > 0:
                    return True
            return False
        for at in range(self.n_counted):
            if self.left_counted[at] < self.counted_need[at] and (
                self.counted_held[p * self.n_counted + at] > 0
            ):
                return True
        return (
            self.left_slots < 1
            or (0 < self.cpu > self.left_cpu and self.amounts[3 * p + 1] > 0)
            or (0 < self.memory > self.left_memory and self.amounts[3 * p + 2] > 0)
        )

    cdef int n_fitting(self, int most) noexcept nogil:
        """How many such pods fit, at most `most`."""
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


cdef class Terms:
    """Whether a pod may leave and at what cost, after the victims that are chosen already.

    A pod moves where it may, else it is evicted: alone while its workload has surplus, else with
    the whole workload.
    """
    # By pod.
    cdef const int[::1] owner, turn, shape
    cdef const long long[::1] amounts, lost
    cdef const unsigned char[::1] is_here, is_core, may_move, is_safe
    # By workload.
    cdef const int[::1] surplus, priority, rank, queue
    cdef const long long[::1] whole_lost, whole_amounts, age
    cdef const unsigned char[::1] is_stuck
    # By queue, or queue and resource; floors by tier first.
    cdef const long long[::1] has, floors
    cdef const int[::1] path_start, path
    cdef const unsigned char[::1] is_mobile, tiers
    # By shape.
    cdef const unsigned char[::1] moves
    cdef int below_priority, n_floors
    # What the victims give: by queue and resource; by workload how many are evicted, their
    # milli-GPU-seconds, what those that are evicted alone hold by resource, and how many move.
    cdef long long[::1] taken, evicted_lost, evicted_amounts
    cdef int[::1] n_evicted, n_moved

    def __cinit__(self, pods, terms):
        n_workloads = len(pods.surplus)
        self.owner, self.turn, self.shape = pods.owner, pods.turn, pods.shape
        self.amounts, self.lost = pods.amounts, pods.lost
        self.is_here, self.is_core, self.may_move = pods.is_here, pods.is_core, pods.may_move
        self.surplus, self.priority, self.queue = pods.surplus, pods.priority, pods.queue
        self.rank, self.age, self.has = pods.rank, pods.age, pods.has
        self.whole_lost, self.whole_amounts = pods.whole_lost, pods.whole_amounts
        self.is_stuck, self.is_safe, self.is_mobile = pods.is_stuck, terms.is_safe, terms.is_mobile
        self.floors, self.path_start, self.path = terms.floors, terms.path_start, terms.path
        self.tiers, self.moves = terms.tiers, terms.moves
        self.below_priority, self.n_floors = terms.below_priority, <int>self.has.shape[0]
        self.taken = array("q", bytes(8 * self.n_floors))
        self.evicted_lost = array("q", bytes(8 * n_workloads))
        self.evicted_amounts = array("q", bytes(24 * n_workloads))
        self.n_evicted = array("i", bytes(4 * n_workloads))
        self.n_moved = array("i", bytes(4 * n_workloads))

    cdef bint appraise(self, int p, Victim* out) noexcept nogil:
        """Whether the pod may leave; sets `out` to the victim that it would be."""
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
            # Surplus pods that are victims already have given their part.
            out.given[resource] = self.whole_amounts[3 * w + resource]
            out.given[resource] -= self.evicted_amounts[3 * w + resource]
        return self.set_tier(queue, out)

    cdef bint set_tier(self, int queue, Victim* out) noexcept nogil:
        """Whether the queue is above its floors in something that the victim gives."""
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
        """Count the victim (1), or no longer (-1)."""
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


cdef class NodeVictims:
    cdef Capacity node
    cdef Terms terms
    cdef const int[::1] node_ixs
    # By position in `node_ixs`, as they were computed last.
    cdef Price* prices
    # The position of a node plus 1; 0 where it is none of `node_ixs`.
    cdef int* position
    # The victims on the node that is loaded; followers of a whole workload come right after it.
    cdef Victim* victims
    cdef int n_victims
    # Whether the largest pod goes first instead of the cheapest.
    cdef bint is_by_size

    def __cinit__(
        self, nodes, node_ixs, pods, terms, demand, counted_need, counted_free, counted_held
    ):
        cdef int at
        self.node = Capacity(nodes, pods, demand, counted_need, counted_free, counted_held)
        self.terms = Terms(pods, terms)
        self.node_ixs = node_ixs
        self.prices = <Price*>calloc(self.node_ixs.shape[0] + 1, sizeof(Price))
        self.position = <int*>calloc(len(nodes) + 1, sizeof(int))
        self.victims = <Victim*>calloc(pods.most_pods + 1, sizeof(Victim))
        if self.prices == NULL or self.position == NULL or self.victims == NULL:
            raise MemoryError(f"no memory for the victims on {self.node_ixs.shape[0]} nodes")
        for at in range(self.node_ixs.shape[0]):
            self.position[self.node_ixs[at]] = at + 1

    def __dealloc__(self):
        release(self.prices)
        release(self.position)
        release(self.victims)

    def update(self, const int[::1] nodes):
        """Compute the prices of these nodes again; nodes that are not in `node_ixs` are ignored."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(nodes.shape[0]):
                if self.position[nodes[each]] > 0:
                    self.choose_on(nodes[each])
                    self.undo(0)

    def choose(self, int ix, int[::1] out):
        """Set out to the victims on node `ix` and return their number; -1 where none help. The
        node's price is up to date afterwards."""
        cdef int at, n = -1
        if self.choose_on(ix):
            n = self.n_victims
            for at in range(n):
                out[at] = self.victims[at].pod
        self.undo(0)
        return n

    def price(self, int at):
        """The price at a position, as (high, moved, low): the smaller is the cheaper."""
        return self.prices[at].high, self.prices[at].moved, self.prices[at].low

    def exclude(self, int at):
        """Make the position impossible until its price is computed again."""
        self.prices[at].high = NEVER

    def cheapest(self):
        """The first position of the least price, or -1 where all are impossible."""
        cdef int at, best = -1
        with nogil:
            for at in range(<int>self.node_ixs.shape[0]):
                if self.prices[at].high != NEVER and (
                    best < 0 or is_cheaper(&self.prices[at], &self.prices[best])
                ):
                    best = at
        return best

    def capacity(self, int most):
        """How many pods fit on all nodes without the pods that may leave, or `most`."""
        cdef Py_ssize_t each
        cdef long long total = 0
        with nogil:
            for each in range(self.node_ixs.shape[0]):
                self.node.load(self.node_ixs[each])
                self.leave_all(1)
                total += self.node.n_fitting(most)
                self.leave_all(-1)
                if total >= most:
                    break
        return min(total, most)

    cdef bint choose_on(self, int ix) noexcept nogil:
        """Choose victims on node `ix` and set its price; the caller undoes them."""
        cdef int at = self.position[ix] - 1
        cdef bint is_possible
        cdef Cost cost
        self.node.load(ix)
        # By size is the second try: small pods may leave a queue too little to give a large one.
        is_possible = self.could_fit() and (self.clear(False) or self.clear(True))
        if is_possible:
            self.keep_needless(0, -1)
            cost = self.cost_from(0)
        if at >= 0:
            self.prices[at] = price_of(&cost) if is_possible else Price(NEVER, 0, 0)
        return is_possible

    cdef bint clear(self, bint is_by_size) noexcept nogil:
        """Choose victims until the pod fits; none where that fails."""
        self.is_by_size = is_by_size
        if self.free_cards() and self.free_host():
            return True
        self.undo(0)
        return False

    cdef bint could_fit(self) noexcept nogil:
        """Whether the pod fits without all pods that may leave: a cheap and exact no."""
        cdef bint is_found
        self.leave_all(1)
        is_found = self.node.has_cards() and self.node.has_host()
        self.leave_all(-1)
        return is_found

    cdef void leave_all(self, int sign) noexcept nogil:
        """All pods that may leave are gone (1), or back (-1)."""
        cdef int p
        cdef bint is_meant
        cdef Victim victim
        for p in range(self.node.first, self.node.last):
            is_meant = self.node.is_gone[p - self.node.first]
            if sign > 0:
                is_meant = self.terms.appraise(p, &victim)
            if is_meant:
                self.node.leave(p, sign)

    cdef bint free_cards(self) noexcept nogil:
        """Free the card that costs least per card that comes free, until there are enough."""
        cdef int c, best, n_before, n_free, n, most = 0
        cdef Cost cost, least = no_cost()
        while not self.node.has_cards():
            best, n_before, n_free = -1, self.n_victims, self.node.n_free_cards()
            for c in range(self.node.cards):
                if self.node.card_free[c] < self.node.need and self.free_card(c):
                    cost = self.cost_from(n_before)
                    n = self.node.n_free_cards() - n_free
                    per_card(&cost, n)
                    n = n if self.is_by_size else 0
                    if best < 0 or n > most or (n == most and is_less(&cost, &least)):
                        best, least, most = c, cost, n
                self.undo(n_before)
            if best < 0:
                return False
            self.free_card(best)
        return True

    cdef bint free_card(self, int card) noexcept nogil:
        """Choose victims until the card has enough free, none of them needlessly."""
        cdef int first = self.n_victims
        while self.node.card_free[card] < self.node.need:
            if not self.take_cheapest(card):
                return False
        self.keep_needless(first, card)
        return True

    cdef bint free_host(self) noexcept nogil:
        """Choose victims until there is enough of everything but cards."""
        while not self.node.has_host():
            if not self.take_cheapest(-1):
                return False
        return True

    cdef bint take_cheapest(self, int card) noexcept nogil:
        """Choose the pod to go next, of equal ones the first, that holds any of the card or (-1) of
        what the host lacks; with it leave the other pods of a workload that leaves whole."""
        cdef int p, best = -1
        cdef long long size, most = 0
        cdef Victim victim, found
        for p in range(self.node.first, self.node.last):
            if self.node.is_gone[p - self.node.first] or not self.node.helps(p, card):
                continue
            size = self.terms.amounts[3 * p] if self.is_by_size else 0
            if self.terms.appraise(p, &victim) and (
                best < 0 or size > most or (size == most and is_less(&victim.cost, &found.cost))
            ):
                best, found, most = p, victim, size
        if best < 0:
            return False
        self.add(&found)
        if found.kind == WHOLE_WORKLOAD:
            found.kind, found.cost = FOLLOWER, no_cost()
            found.cost.count = 1
            for p in range(self.node.first, self.node.last):
                if self.terms.owner[p] == self.terms.owner[best] and self.terms.is_here[p] and (
                    not self.node.is_gone[p - self.node.first]
                ):
                    found.pod = p
                    self.add(&found)
        return True

    cdef void add(self, const Victim* victim) noexcept nogil:
        self.victims[self.n_victims] = victim[0]
        self.n_victims += 1
        self.change(victim, 1)

    cdef void change(self, const Victim* victim, int sign) noexcept nogil:
        """The pod leaves and its queue gives (1); or neither (-1)."""
        self.node.leave(victim.pod, sign)
        self.terms.give(victim, sign)

    cdef void undo(self, int n_kept) noexcept nogil:
        """Drop all victims but the first `n_kept`."""
        while self.n_victims > n_kept:
            self.n_victims -= 1
            self.change(&self.victims[self.n_victims], -1)

    cdef Cost cost_from(self, int first) noexcept nogil:
        """What the victims from `first` on cost together."""
        cdef int at
        cdef Cost total = no_cost()
        for at in range(first, self.n_victims):
            add_cost(&total, &self.victims[at].cost)
        return total

    cdef void keep_needless(self, int first, int card) noexcept nogil:
        """Keep each victim from `first` on without which the card, or (-1) the pod, still fits; the
        most expensive first."""
        cdef int at, last, each
        for at in range(first, self.n_victims):
            self.victims[at].is_tested = self.victims[at].kind == FOLLOWER
        while True:
            at = self.dearest_untested(first)
            if at < 0:
                return
            self.victims[at].is_tested = True
            last = at + 1
            while last < self.n_victims and self.victims[last].kind == FOLLOWER:
                last += 1
            for each in range(at, last):
                self.change(&self.victims[each], -1)
            if (card >= 0 and self.node.card_free[card] >= self.node.need) or (
                card < 0 and self.node.has_cards() and self.node.has_host()
            ):
                for each in range(last, self.n_victims):
                    self.victims[each - last + at] = self.victims[each]
                self.n_victims -= last - at
            else:
                for each in range(at, last):
                    self.change(&self.victims[each], 1)

    cdef int dearest_untested(self, int first) noexcept nogil:
        """The victim to keep next, or -1; surplus of one that leaves whole stays a victim."""
        cdef int at, other, best = -1
        cdef bint is_held
        for at in range(first, self.n_victims):
            is_held = self.victims[at].is_tested
            for other in range(self.n_victims if self.victims[at].kind == SINGLE else 0):
                is_held |= self.victims[other].kind == WHOLE_WORKLOAD and (
                    self.terms.owner[self.victims[other].pod]
                    == self.terms.owner[self.victims[at].pod]
                )
            if not is_held and (
                best < 0 or is_less(&self.victims[best].cost, &self.victims[at].cost)
            ):
                best = at
        return best

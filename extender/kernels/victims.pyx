# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which pods leave a node so that one more fits, and what that costs. Twin: `victims_twin`.

A `Room` is bound to some nodes of a table, a herd (pods that may be told to leave), the terms on
which they may, and one pod's demand (`extender.policy.herd` and `terms` describe the arrays); it
reads them anew in every call and changes none. Cards are freed one by one, the cheapest first, then
pods leave for what else the node lacks; what proves needless stays after all, and one unit that
does it alone is looked at as well. Costs compare as in `room.pxd`. Time: for each node its cards
times its pods, and its pods once more for each that is chosen.
"""

from libc.stdlib cimport calloc, free as release
from libc.string cimport memcpy

from extender.kernels.cards cimport WHOLE, card_need, cards_fit, cards_room
from extender.kernels.room cimport (
    CORE, FOLLOWER, MOVE, SINGLE, Cost, Entry, Price, add_cost, high_of, is_less, low_of,
)

#: `high` of a node on which nothing helps.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


def sum_idle(nodes, const int[::1] candidates, long long[::1] out):
    """Set out (int64[3]) to the milli-GPU, milli-CPU and MiB that the nodes have free together."""
    cdef const int[::1] free = nodes.cards.card_free
    cdef const int[::1] n_cards = nodes.cards.n_cards
    cdef const long long[::1] cpu = nodes.free_cpu_milli
    cdef const long long[::1] memory = nodes.free_memory_mib
    cdef int stride = nodes.cards.stride, at, ix
    cdef Py_ssize_t each
    out[0] = out[1] = out[2] = 0
    for each in range(candidates.shape[0]):
        ix = candidates[each]
        for at in range(ix * stride, ix * stride + n_cards[ix]):
            out[0] += max(0, free[at])
        out[1] += max(<long long>0, cpu[ix])
        out[2] += max(<long long>0, memory[ix])


def sum_units(herd, long long[::1] total, long long[::1] largest):
    """Set what the workloads of each queue could give together, and the most that one could.

    Both are int64[3 * n], by queue and resource.
    """
    cdef const long long[::1] amounts = herd.whole_amounts
    cdef const int[::1] queue = herd.queue
    cdef Py_ssize_t w
    cdef int at
    total[:] = 0
    largest[:] = 0
    for w in range(queue.shape[0]):
        for at in range(3):
            total[3 * queue[w] + at] += amounts[3 * w + at]
            largest[3 * queue[w] + at] = max(largest[3 * queue[w] + at], amounts[3 * w + at])


cdef class Room:
    cdef int[::1] free, slots, owner, start, card_start, card_ix, card_milli, surplus, priority
    cdef int[::1] queue, path_start, path, shape, turn
    cdef const int[::1] mib, n_cards
    cdef long long[::1] free_cpu, free_memory, amounts, lost, whole_lost, whole_amounts, age
    cdef long long[::1] has, floors, extra_need, extra_free, extra_held
    cdef unsigned char[::1] is_here, is_core, is_stuck, is_safe, is_mobile, may_move
    cdef unsigned char[::1] moves, tiers
    cdef int stride, devices, milli, want_mib, below_priority, n_extra, n_floors, most_pods
    cdef long long cpu, memory
    # The node being looked at, as it is with the pods of `entries` gone.
    cdef int card_free[64]
    cdef int cards, need, first, last, n_entries
    cdef bint is_by_size
    cdef long long left_cpu, left_memory, left_slots
    cdef long long* left_extra
    cdef long long* taken
    cdef unsigned char* is_gone
    cdef Entry* entries
    cdef Entry* saved
    # What room costs on each of `candidates`, as it was when it was last asked for.
    cdef const int[::1] candidates
    cdef Price* prices

    def __cinit__(self, nodes, candidates, herd, terms, demand, extra_need, extra_free, extra_held):
        cards = nodes.cards
        self.free, self.mib, self.n_cards = cards.card_free, cards.card_mib, cards.n_cards
        self.stride, self.slots = cards.stride, nodes.free_pods
        self.free_cpu, self.free_memory = nodes.free_cpu_milli, nodes.free_memory_mib
        self.start, self.owner = herd.start, herd.owner
        self.shape, self.turn = herd.shape, herd.turn
        self.card_start, self.card_ix = herd.card_start, herd.card_ix
        self.card_milli, self.amounts, self.lost = herd.card_milli, herd.amounts, herd.lost
        self.is_here, self.is_core, self.may_move = herd.is_here, herd.is_core, herd.may_move
        self.surplus, self.priority, self.age = herd.surplus, herd.priority, herd.age
        self.whole_lost, self.whole_amounts = herd.whole_lost, herd.whole_amounts
        self.queue, self.has, self.most_pods = herd.queue, herd.has, herd.most_pods
        self.is_stuck, self.is_safe, self.is_mobile = herd.is_stuck, terms.is_safe, terms.is_mobile
        self.tiers, self.moves = terms.tiers, terms.moves
        self.path_start, self.path, self.floors = terms.path_start, terms.path, terms.floors
        self.below_priority, self.n_floors = terms.below_priority, <int>self.has.shape[0]
        self.devices, self.milli = demand.devices, demand.milli
        self.want_mib, self.cpu, self.memory = (
            demand.gpu_memory_mib, demand.cpu_milli, demand.memory_mib
        )
        self.extra_need, self.extra_free, self.extra_held = extra_need, extra_free, extra_held
        self.n_extra = <int>self.extra_need.shape[0]
        self.is_gone = <unsigned char*>calloc(self.most_pods + 1, 1)
        self.entries = <Entry*>calloc(2 * self.most_pods + 2, sizeof(Entry))
        self.taken = <long long*>calloc(self.n_floors + self.n_extra + 1, sizeof(long long))
        self.candidates = candidates
        self.prices = <Price*>calloc(self.candidates.shape[0] + 1, sizeof(Price))
        if not (self.is_gone and self.entries and self.taken and self.prices):
            raise MemoryError
        self.saved = self.entries + self.most_pods + 1
        self.left_extra = self.taken + self.n_floors

    def __dealloc__(self):
        release(self.is_gone)
        release(self.entries)
        release(self.taken)
        release(self.prices)

    def update(self, const int[::1] at):
        """Work out again what room costs at these positions in `candidates`."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(at.shape[0]):
                self.set_price(at[each])

    def update_all(self):
        """The same everywhere."""
        cdef int at
        with nogil:
            for at in range(<int>self.candidates.shape[0]):
                self.set_price(at)

    def price(self, int at):
        """What it costs there, as (high, moved, low): the smaller is the cheaper."""
        return self.prices[at].high, self.prices[at].moved, self.prices[at].low

    def exclude(self, int at):
        """It is impossible there until it is worked out again."""
        self.prices[at].high = NEVER

    def cheapest(self):
        """The first position of the least cost, or -1 where it is impossible everywhere."""
        cdef Py_ssize_t at, best = -1
        cdef long long most = NEVER
        for at in range(self.candidates.shape[0]):
            if self.prices[at].high > most or self.prices[at].high == NEVER:
                continue
            if best < 0 or self.prices[at].high < most or (
                self.prices[at].moved < self.prices[best].moved
            ) or (
                self.prices[at].moved == self.prices[best].moved
                and self.prices[at].low < self.prices[best].low
            ):
                best = at
                most = self.prices[at].high
        return best

    cdef void set_price(self, int at) noexcept nogil:
        cdef Cost total
        if self.draft(self.candidates[at]):
            total = self.total(0)
            self.prices[at].high = high_of(&total)
            self.prices[at].moved = total.moved
            self.prices[at].low = low_of(&total)
        else:
            self.prices[at].high = NEVER
        self.undo(0)

    def choose(self, int ix, int[::1] out):
        """How many pods leave node `ix`; their indices are in out. -1 where nothing helps."""
        cdef int at, n = -1
        if self.draft(ix):
            n = self.n_entries
            for at in range(n):
                out[at] = self.entries[at].pod
        self.undo(0)
        return n

    def capacity(self, int most):
        """How many pods fit on all candidates with everything gone that may go, or `most`."""
        cdef Py_ssize_t each
        cdef long long total = 0
        with nogil:
            for each in range(self.candidates.shape[0]):
                self.load(self.candidates[each])
                self.leave_all(1)
                total += self.n_fitting(most)
                self.leave_all(-1)
                if total >= most:
                    break
        return min(total, most)

    cdef int n_fitting(self, int most) noexcept nogil:
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

    cdef bint draft(self, int ix) noexcept nogil:
        """Choose; those chosen are in `entries`."""
        cdef bint is_found
        self.load(ix)
        if self.fits():
            return True
        if not self.could_fit():
            return False
        self.is_by_size = False
        is_found = self.clear_cards() and self.clear_host()
        if not is_found:
            # Order matters where a queue may give only so much: by size is the second try.
            self.undo(0)
            self.is_by_size = True
            is_found = self.clear_cards() and self.clear_host()
            self.is_by_size = False
        if is_found:
            self.trim()
        else:
            self.undo(0)
        return self.try_alone(is_found)

    cdef void load(self, int ix) noexcept nogil:
        cdef int c
        self.cards, self.first, self.last = self.n_cards[ix], self.start[ix], self.start[ix + 1]
        self.need = card_need(self.milli, self.want_mib, self.mib[ix])
        for c in range(self.cards):
            self.card_free[c] = self.free[ix * self.stride + c]
        self.left_cpu, self.left_memory = self.free_cpu[ix], self.free_memory[ix]
        self.left_slots = self.slots[ix]
        for c in range(self.n_extra):
            self.left_extra[c] = self.extra_free[ix * self.n_extra + c]
        self.n_entries = 0

    cdef bint has_host(self) noexcept nogil:
        cdef int at
        for at in range(self.n_extra):
            if self.left_extra[at] < self.extra_need[at]:
                return False
        return (
            self.left_slots >= 1 and (self.cpu == 0 or self.left_cpu >= self.cpu)
            and (self.memory == 0 or self.left_memory >= self.memory)
        )

    cdef bint has_cards(self) noexcept nogil:
        return cards_fit(&self.card_free[0], self.cards, self.devices, self.need)

    cdef bint fits(self) noexcept nogil:
        return self.has_cards() and self.has_host()

    cdef bint could_fit(self) noexcept nogil:
        """Whether it fits with everything gone that may go: the cheap and exact no."""
        cdef bint is_found
        self.leave_all(1)
        is_found = self.fits()
        self.leave_all(-1)
        return is_found

    cdef void leave_all(self, int sign) noexcept nogil:
        """Everything that may go is gone (1), or there again (-1)."""
        cdef int p
        cdef bint is_meant
        cdef Entry entry
        for p in range(self.first, self.last):
            is_meant = self.is_gone[p - self.first]
            if sign > 0:
                is_meant = self.appraise(p, &entry)
            if is_meant:
                self.leave(p, sign)

    cdef bint clear_cards(self) noexcept nogil:
        """Free card after card, the cheapest first, until there are enough."""
        cdef int c, best, n_before
        cdef bint is_open[64]
        cdef Cost cost[64]
        cdef Cost now
        if self.has_cards():
            return True
        if self.need > WHOLE:
            return False
        for c in range(self.cards):
            is_open[c] = self.card_free[c] < self.need and self.clear_card(c)
            cost[c] = self.total(0)
            self.undo(0)
        while not self.has_cards():
            best = -1
            for c in range(self.cards):
                if is_open[c] and self.card_free[c] < self.need and (
                    best < 0 or is_less(&cost[c], &cost[best])
                ):
                    best = c
            if best < 0:
                return False
            # What is chosen already may have made the card dearer, or closed it.
            n_before = self.n_entries
            is_open[best] = self.clear_card(best)
            now = self.total(n_before)
            if not is_open[best] or is_less(&cost[best], &now):
                self.undo(n_before)
            cost[best] = now
        return True

    cdef bint clear_card(self, int card) noexcept nogil:
        cdef int p
        while self.card_free[card] < self.need:
            p = self.cheapest_on(card)
            if p < 0:
                return False
            self.take(p)
        return True

    cdef bint clear_host(self) noexcept nogil:
        cdef int p
        while not self.has_host():
            p = self.cheapest_on(-1)
            if p < 0:
                return False
            self.take(p)
        return True

    cdef int cheapest_on(self, int card) noexcept nogil:
        """The cheapest pod that holds of the card, or (-1) of what the host lacks; -1: none."""
        cdef int p, best = -1
        cdef long long size, best_size = 0
        cdef Entry entry
        cdef Cost least
        for p in range(self.first, self.last):
            if self.is_gone[p - self.first] or not self.helps(p, card):
                continue
            if not self.appraise(p, &entry):
                continue
            size = self.amounts[3 * p] if self.is_by_size else 0
            if best < 0 or size > best_size or (size == best_size and is_less(&entry.cost, &least)):
                best, best_size, least = p, size, entry.cost
        return best

    cdef bint helps(self, int p, int card) noexcept nogil:
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
            or (self.cpu > self.left_cpu and self.amounts[3 * p + 1] > 0)
            or (self.memory > self.left_memory and self.amounts[3 * p + 2] > 0)
        )

    cdef bint appraise(self, int p, Entry* entry) noexcept nogil:
        """Whether the pod may go, and at what price, after those that are chosen."""
        cdef int at, w = self.owner[p], n_singles = 0
        cdef long long lost = 0
        cdef bint is_core, is_moving = False
        if not self.is_here[p] or self.priority[w] >= self.below_priority or self.is_safe[w] > 1:
            return False
        for at in range(self.n_entries):
            if self.owner[self.entries[at].pod] == w:
                if self.entries[at].kind == MOVE:
                    is_moving = True
                else:
                    n_singles += 1
                    lost += self.lost[self.entries[at].pod]
        is_core = self.is_core[p] or n_singles >= self.surplus[w]
        entry.pod, entry.is_tested = p, False
        entry.cost = Cost(0, 0, 0, self.priority[w], 1, self.turn[p], 0, 0, self.age[w])
        if self.may_move[p] and self.moves[self.shape[p]] and self.is_mobile[self.queue[w]]:
            entry.kind = MOVE
            if not is_core:
                entry.cost.moved = self.lost[p]
            elif not is_moving:
                entry.cost.moved = self.whole_lost[w]
            return True
        if is_core and (self.is_stuck[w] or self.is_safe[w]):
            return False
        entry.kind = CORE if is_core else SINGLE
        entry.cost.is_whole = is_core
        entry.cost.lost = self.whole_lost[w] - lost if is_core else self.lost[p]
        if is_core:
            return self.set_tier(self.queue[w], &self.whole_amounts[3 * w], &entry.cost)
        return self.set_tier(self.queue[w], &self.amounts[3 * p], &entry.cost)

    cdef bint set_tier(self, int queue, const long long* amounts, Cost* cost) noexcept nogil:
        """Whether the queue is above its floors in something that the amounts have."""
        cdef int tier, at, resource, spot
        cdef long long above, least
        cdef bint is_open = False
        for tier in range(self.tiers[queue]):
            cost.is_below = 1
            for resource in range(3):
                if amounts[resource] <= 0:
                    continue
                least = 0x7FFFFFFFFFFFFFFF
                for at in range(self.path_start[queue], self.path_start[queue + 1]):
                    spot = 3 * self.path[at] + resource
                    above = self.has[spot] - self.taken[spot]
                    least = min(least, above - self.floors[tier * self.n_floors + spot])
                if least > 0:
                    is_open = True
                    if amounts[resource] <= least:
                        cost.is_below = 0
            if is_open or self.path_start[queue] == self.path_start[queue + 1]:
                cost.tier = tier
                cost.is_below &= self.path_start[queue] < self.path_start[queue + 1]
                return True
        return False

    cdef void take(self, int p) noexcept nogil:
        """Choose the pod, which may go, and what of its core is on the node."""
        cdef int other
        cdef Entry* entry = &self.entries[self.n_entries]
        self.appraise(p, entry)
        self.n_entries += 1
        self.change(entry, 1)
        if entry.kind != CORE:
            return
        for other in range(self.first, self.last):
            if self.owner[other] == self.owner[p] and self.is_here[other] and (
                not self.is_gone[other - self.first]
            ):
                entry = &self.entries[self.n_entries]
                entry.pod, entry.kind, entry.is_tested = other, FOLLOWER, True
                entry.cost = Cost(0, 0, 0, 0, 1, 0, 0, 0, 0)
                self.n_entries += 1
                self.change(entry, 1)

    cdef void change(self, const Entry* entry, int sign) noexcept nogil:
        """The pod is gone, and its queue has given what it gives (1); or neither (-1)."""
        cdef int at, resource, queue, w = self.owner[entry.pod]
        self.leave(entry.pod, sign)
        if entry.kind == MOVE or entry.kind == FOLLOWER:
            return
        queue = self.queue[w]
        for at in range(self.path_start[queue], self.path_start[queue + 1]):
            for resource in range(3):
                self.taken[3 * self.path[at] + resource] += sign * (
                    self.whole_amounts[3 * w + resource] if entry.kind == CORE
                    else self.amounts[3 * entry.pod + resource]
                )

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

    cdef void undo(self, int n_kept) noexcept nogil:
        while self.n_entries > n_kept:
            self.n_entries -= 1
            self.change(&self.entries[self.n_entries], -1)

    cdef Cost total(self, int first) noexcept nogil:
        """What those chosen cost, from the entry `first` on."""
        cdef int at
        cdef Cost total = Cost(0, 0, 0, 0, 0, 0, 0, 0, 0)
        for at in range(first, self.n_entries):
            add_cost(&total, &self.entries[at].cost)
        return total

    cdef void trim(self) noexcept nogil:
        """Let stay what is not needed, the dearest first: then the choice is minimal."""
        cdef int at, last, kept, moved
        while True:
            at = self.dearest_untested()
            if at < 0:
                return
            self.entries[at].is_tested = True
            last = at + 1
            while last < self.n_entries and self.entries[last].kind == FOLLOWER:
                last += 1
            for kept in range(at, last):
                self.change(&self.entries[kept], -1)
            if self.fits():
                for moved in range(last, self.n_entries):
                    self.entries[moved - last + at] = self.entries[moved]
                self.n_entries -= last - at
            else:
                for kept in range(at, last):
                    self.change(&self.entries[kept], 1)

    cdef int dearest_untested(self) noexcept nogil:
        """The entry to put back next; not one whose workload goes whole; -1: none."""
        cdef int at, other, best = -1
        cdef bint is_held
        for at in range(self.n_entries):
            if self.entries[at].is_tested:
                continue
            is_held = False
            for other in range(self.n_entries):
                is_held |= (
                    self.entries[at].kind == SINGLE
                    and self.entries[other].kind == CORE
                    and self.owner[self.entries[other].pod] == self.owner[self.entries[at].pod]
                )
            if not is_held and (
                best < 0 or is_less(&self.entries[best].cost, &self.entries[at].cost)
            ):
                best = at
        return best

    cdef bint try_alone(self, bint is_found) noexcept nogil:
        """Take one unit that suffices alone instead where that is cheaper."""
        cdef int p, at, n_saved = self.n_entries, n_units = 0
        cdef Cost best = self.total(0), cost
        for at in range(n_saved):
            n_units += self.entries[at].kind != FOLLOWER
        if is_found and n_units == 1:
            return True
        memcpy(self.saved, self.entries, n_saved * sizeof(Entry))
        self.undo(0)
        for p in range(self.first, self.last):
            if not self.appraise(p, &self.entries[0]):
                continue
            self.take(p)
            cost = self.total(0)
            if self.fits() and (not is_found or is_less(&cost, &best)):
                is_found, best, n_saved = True, cost, self.n_entries
                memcpy(self.saved, self.entries, n_saved * sizeof(Entry))
            self.undo(0)
        if is_found:
            for at in range(n_saved):
                self.entries[at] = self.saved[at]
                self.change(&self.entries[at], 1)
            self.n_entries = n_saved
        return is_found

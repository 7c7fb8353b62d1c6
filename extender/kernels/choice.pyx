# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The pods chosen to leave one node, in order, and what they cost. Twin: `choice_twin`.

A choice is made of units: a pod that moves, one that stops alone, or a core, which is what a
workload without surplus has on the node. The arguments are those of `vacancy` and `appraisal`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.appraisal cimport Appraisal
from extender.kernels.costs cimport (
    CORE, FOLLOWER, SINGLE, Cost, Entry, add_cost, high_of, is_less, low_of, moved_of, no_cost,
)
from extender.kernels.vacancy cimport Vacancy


cdef class Choice:
    def __cinit__(self, nodes, herd, terms, demand, extra_need, extra_free, extra_held):
        self.node = Vacancy(nodes, herd, demand, extra_need, extra_free, extra_held)
        self.terms = Appraisal(herd, terms)
        self.most_pods = herd.most_pods
        self.entries = <Entry*>calloc(self.most_pods + 1, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError(f"no memory to choose among {self.most_pods} pods")

    def __dealloc__(self):
        release(self.entries)

    def needed(self, int ix, const int[::1] pods):
        """Which of `pods`, which are on node `ix`, have to leave so that one more fits.

        They are taken in this order, with their cores; who may not leave or has left is passed
        over. Returns the pods and (high, moved, low) of their cost, or None if it is not enough.
        """
        cdef Entry entry
        cdef Cost cost
        cdef Py_ssize_t at
        answer = None
        self.node.load(ix)
        for at in range(pods.shape[0]):
            if not self.node.is_gone[pods[at] - self.node.first] and (
                self.terms.appraise(pods[at], &entry)
            ):
                self.take(pods[at])
        if self.node.fits():
            self.trim(0, -1)
            cost = self.total(0)
            chosen = [self.entries[at].pod for at in range(self.n_entries)]
            answer = chosen, (high_of(&cost), moved_of(&cost), low_of(&cost))
        self.undo(0)
        return answer

    cdef void take(self, int p) noexcept nogil:
        """Choose the pod, which may go, and what of its core is on the node."""
        cdef int other
        cdef Entry entry
        self.terms.appraise(p, &entry)
        self.add(&entry)
        if entry.kind != CORE:
            return
        entry.kind, entry.is_tested, entry.cost = FOLLOWER, True, no_cost()
        entry.cost.count = 1
        for other in range(self.node.first, self.node.last):
            if self.terms.owner[other] == self.terms.owner[p] and self.terms.is_here[other] and (
                not self.node.is_gone[other - self.node.first]
            ):
                entry.pod = other
                self.add(&entry)

    cdef void add(self, const Entry* entry) noexcept nogil:
        self.entries[self.n_entries] = entry[0]
        self.n_entries += 1
        self.change(entry, 1)

    cdef void change(self, const Entry* entry, int sign) noexcept nogil:
        """The pod is gone, and its queue has given what it gives (1); or neither (-1)."""
        self.node.leave(entry.pod, sign)
        self.terms.give(entry, sign)

    cdef void undo(self, int n_kept) noexcept nogil:
        """Choose the first `n_kept` only."""
        while self.n_entries > n_kept:
            self.n_entries -= 1
            self.change(&self.entries[self.n_entries], -1)

    cdef Cost total(self, int first) noexcept nogil:
        """What those chosen cost, from the entry `first` on."""
        cdef int at
        cdef Cost total = no_cost()
        for at in range(first, self.n_entries):
            add_cost(&total, &self.entries[at].cost)
        return total

    cdef int cheapest(self, int card, bint is_by_size) noexcept nogil:
        """The pod to go next of those that hold of the card, or (-1) of what the host lacks.

        The cheapest, or the one with most milli-GPU, of equals the first; -1: none may go.
        """
        cdef int p, best = -1
        cdef long long size, best_size = 0
        cdef Entry entry
        cdef Cost least = no_cost()
        for p in range(self.node.first, self.node.last):
            if self.node.is_gone[p - self.node.first] or not self.node.helps(p, card):
                continue
            if not self.terms.appraise(p, &entry):
                continue
            size = self.terms.amounts[3 * p] if is_by_size else 0
            if best < 0 or size > best_size or (size == best_size and is_less(&entry.cost, &least)):
                best, best_size, least = p, size, entry.cost
        return best

    cdef void trim(self, int first, int card) noexcept nogil:
        """Let stay what is not needed of those chosen from the entry `first` on, the dearest first:
        then that is minimal. It is needed for the card, or (-1) for all that the node lacks."""
        cdef int at, last, kept, moved
        while True:
            at = self.dearest_untested(first)
            if at < 0:
                return
            self.entries[at].is_tested = True
            last = at + 1
            while last < self.n_entries and self.entries[last].kind == FOLLOWER:
                last += 1
            for kept in range(at, last):
                self.change(&self.entries[kept], -1)
            if self.node.fits() if card < 0 else self.node.card_free[card] >= self.node.need:
                for moved in range(last, self.n_entries):
                    self.entries[moved - last + at] = self.entries[moved]
                self.n_entries -= last - at
            else:
                for kept in range(at, last):
                    self.change(&self.entries[kept], 1)

    cdef int dearest_untested(self, int first) noexcept nogil:
        """The entry to put back next; not one whose workload goes whole; -1: none."""
        cdef int at, other, best = -1
        cdef bint is_held
        for at in range(first, self.n_entries):
            if self.entries[at].is_tested:
                continue
            is_held = False
            for other in range(self.n_entries):
                is_held |= (
                    self.entries[at].kind == SINGLE
                    and self.entries[other].kind == CORE
                    and self.terms.owner[self.entries[other].pod]
                    == self.terms.owner[self.entries[at].pod]
                )
            if not is_held and (
                best < 0 or is_less(&self.entries[best].cost, &self.entries[at].cost)
            ):
                best = at
        return best

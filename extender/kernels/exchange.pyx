# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whether one unit more lets others stay, so that who leaves a node costs less. Twin:
`exchange_twin`.

Each pod of the node is tried once, by itself if nothing was found before. Who is neither cheaper
nor bigger than anybody chosen can't help. Time: the node's pods times those chosen, squared, for
those that could.
"""

from libc.stdlib cimport calloc, free as release
from libc.string cimport memcpy

from extender.kernels.choice cimport Choice
from extender.kernels.costs cimport CORE, FOLLOWER, Cost, Entry, is_less


cdef class Exchange:
    def __cinit__(self, Choice choice):
        self.choice = choice
        self.best = <Entry*>calloc(choice.most_pods + 1, sizeof(Entry))
        if self.best == NULL:
            raise MemoryError(f"no memory to choose among {choice.most_pods} pods")

    def __dealloc__(self):
        release(self.best)

    cdef bint improve(self, bint is_found) noexcept nogil:
        """Make the choice cheaper; returns whether there is one, which there may be where none was
        found before."""
        cdef int p, at
        cdef Cost cost
        cdef Entry entry
        self.save()
        for p in range(self.choice.node.first, self.choice.node.last):
            if not self.choice.terms.appraise(p, &entry):
                continue
            if is_found and not self.could_help(&entry):
                continue
            self.choose_with(p)
            if self.choice.node.fits():
                self.choice.trim(0, -1)
                cost = self.choice.total(0)
                if not is_found or is_less(&cost, &self.cost):
                    is_found = True
                    self.save()
                    continue
            self.choice.undo(0)
        for at in range(self.n_best):
            self.choice.add(&self.best[at])
        return is_found

    cdef void save(self) noexcept nogil:
        """What is chosen is the best; then nothing is chosen."""
        self.n_best, self.cost = self.choice.n_entries, self.choice.total(0)
        memcpy(self.best, self.choice.entries, self.n_best * sizeof(Entry))
        self.choice.undo(0)

    cdef bint could_help(self, const Entry* entry) noexcept nogil:
        """Whether the pod is cheaper than all, and cheaper or bigger than any; not one of them."""
        cdef int at, r
        cdef bint is_any = entry.kind == CORE
        if not is_less(&entry.cost, &self.cost):
            return False
        for at in range(self.n_best):
            if self.best[at].pod == entry.pod:
                return False
            is_any |= self.best[at].kind == CORE
            is_any |= is_less(&entry.cost, &self.best[at].cost)
            for r in range(3):
                is_any |= (
                    self.choice.terms.amounts[3 * entry.pod + r]
                    > self.choice.terms.amounts[3 * self.best[at].pod + r]
                )
        return is_any

    cdef void choose_with(self, int p) noexcept nogil:
        """Choose the pod, who then goes, and after it those of the best that still may."""
        cdef int at
        cdef Entry entry
        self.choice.take(p)
        self.choice.entries[0].is_tested = True
        for at in range(self.n_best):
            if self.best[at].kind != FOLLOWER and not (
                self.choice.node.is_gone[self.best[at].pod - self.choice.node.first]
            ) and self.choice.terms.appraise(self.best[at].pod, &entry):
                self.choice.take(self.best[at].pod)

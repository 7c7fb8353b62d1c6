# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The cost of making room for one more pod on each node, and the cheapest node.

`NodeVictims` is bound to the arrays of `extender.policy.preemption.candidates` and `eligibility`
and of the node table. It reads them anew in every call and changes none. `victims` chooses the
victims on a node. Twin: `node_victims_twin`.
"""

from libc.stdlib cimport calloc, free as release

from extender.kernels.capacity cimport Capacity
from extender.kernels.costs cimport Cost, PackedCost, is_cheaper, packed
from extender.kernels.terms cimport Terms
from extender.kernels.victims cimport Victims

#: `high` of a node where no victims make room.
IMPOSSIBLE = 0x7FFFFFFFFFFFFFFF
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF


cdef class NodeVictims:
    cdef Victims victims
    cdef const int[::1] node_ixs
    # By position in `node_ixs`, as last computed.
    cdef PackedCost* costs
    # The position of a node in `node_ixs` plus 1; 0 if it is not in there.
    cdef int* position

    def __cinit__(
        self, nodes, node_ixs, pods, eligibility, demand, counted_need, counted_free, counted_held
    ):
        cdef int at
        node = Capacity(nodes, pods, demand, counted_need, counted_free, counted_held)
        self.victims = Victims(node, Terms(pods, eligibility), pods.most_pods)
        self.node_ixs = node_ixs
        self.costs = <PackedCost*>calloc(self.node_ixs.shape[0] + 1, sizeof(PackedCost))
        self.position = <int*>calloc(len(nodes) + 1, sizeof(int))
        if self.costs == NULL or self.position == NULL:
            raise MemoryError(f"no memory for the victims on {self.node_ixs.shape[0]} nodes")
        for at in range(self.node_ixs.shape[0]):
            self.position[self.node_ixs[at]] = at + 1

    def __dealloc__(self):
        release(self.costs)
        release(self.position)

    def update(self, const int[::1] nodes):
        """Recompute the costs of these nodes; nodes that are not in `node_ixs` are ignored."""
        cdef Py_ssize_t each
        with nogil:
            for each in range(nodes.shape[0]):
                if self.position[nodes[each]] > 0:
                    self.choose_on(nodes[each])
                    self.victims.undo(0)

    def choose(self, int ix, int[::1] out):
        """Set `out` to the victims on node `ix` and return their number; -1 if none make room.

        Also updates the node's cost.
        """
        cdef int at, n = -1
        if self.choose_on(ix):
            n = self.victims.n
            for at in range(n):
                out[at] = self.victims.chosen[at].pod
        self.victims.undo(0)
        return n

    def cost(self, int at):
        """The cost at a position as (high, moved, low), smaller is cheaper."""
        return self.costs[at].high, self.costs[at].moved, self.costs[at].low

    def exclude(self, int at):
        """Make the position impossible until its cost is recomputed."""
        self.costs[at].high = NEVER

    def cheapest(self):
        """The first position with the lowest cost; -1 if all are impossible."""
        cdef int at, best = -1
        with nogil:
            for at in range(<int>self.node_ixs.shape[0]):
                if self.costs[at].high != NEVER and (
                    best < 0 or is_cheaper(&self.costs[at], &self.costs[best])
                ):
                    best = at
        return best

    def capacity(self, int most):
        """How many pods fit on all nodes without the pods that may be victims, at most `most`."""
        cdef Py_ssize_t each
        cdef long long total = 0
        with nogil:
            for each in range(self.node_ixs.shape[0]):
                total += self.victims.n_fitting(self.node_ixs[each], most)
                if total >= most:
                    break
        return min(total, most)

    cdef bint choose_on(self, int ix) noexcept nogil:
        """Choose victims on node `ix` and set its cost; the caller has to undo them."""
        cdef int at = self.position[ix] - 1
        cdef bint is_possible = self.victims.choose(ix)
        cdef Cost cost
        if at >= 0 and is_possible:
            cost = self.victims.cost_from(0)
            self.costs[at] = packed(&cost)
        elif at >= 0:
            self.costs[at] = PackedCost(NEVER, 0, 0)
        return is_possible

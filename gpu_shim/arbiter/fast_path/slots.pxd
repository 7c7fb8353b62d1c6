"""Slots of containers and connections, which keep their numbers until they are removed."""

from libc.stdlib cimport realloc

from gpu_shim.arbiter.fast_path.handover cimport ArbiterState, Connection


cdef inline int one_more(void **slots, int *n, size_t size) noexcept nogil:
    """The number of a slot added at the end; -1 without memory."""
    cdef void *grown = realloc(slots[0], <size_t>(n[0] + 1) * size)
    if not grown:
        return -1
    slots[0] = grown
    n[0] += 1
    return n[0] - 1


cdef inline int take_event(ArbiterState *state, int begin, Connection *into) noexcept nogil:
    """The first connection from `begin` on with an event, which is taken; -1: there is none."""
    cdef int slot
    for slot in range(begin, state.n_connections):
        if state.connections[slot].container >= 0 and state.connections[slot].has_event:
            into[0] = state.connections[slot]
            state.connections[slot].has_event = False
            return slot
    return -1

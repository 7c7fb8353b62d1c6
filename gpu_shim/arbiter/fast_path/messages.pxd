"""What processes say of the cards of their container, and their end. Callers hold the lock."""

from libc.stdint cimport uint32_t, uint64_t

from gpu_shim.arbiter.fast_path.gates cimport drained, is_handing_over
from gpu_shim.arbiter.fast_path.state cimport (
    BALLAST_DRAINED, BALLAST_WANT, BALLAST_YIELD, ArbiterState, CardSlot, Connection,
    ContainerSlot, message_t,
)


cdef inline bint receive(ArbiterState *state, int connection, const message_t *message,
                         uint64_t now_ns) noexcept nogil:
    """Take in a message; False if the process may not send it."""
    cdef Connection *own = &state.connections[connection]
    cdef ContainerSlot *of = &state.containers[own.container]
    cdef uint32_t bit
    cdef CardSlot *card
    cdef bint is_late
    if message.slot or message.card >= of.n_cards:
        return False
    bit = <uint32_t>1 << message.card
    card = &state.cards[of.card[message.card]]
    is_late = card.holder != own.container
    if message.kind == BALLAST_WANT:
        own.wanted |= bit
        own.used |= bit
    elif message.kind == BALLAST_YIELD:
        own.wanted &= ~bit
    elif message.kind != BALLAST_DRAINED:
        return False
    elif message.value == of.generation[message.card]:
        drained(state, connection, message.card, now_ns)
    own.has_event = True
    # While a plan is carried out, the scheduler need not hear of every process that drained; of
    # one that drained after its container was overtaken it must, since that is charged.
    if message.kind != BALLAST_DRAINED or is_late or not is_handing_over(card):
        state.has_events = True
    return True


cdef inline void end_process(ArbiterState *state, int connection, uint64_t now_ns) noexcept nogil:
    """The process has ended, and with it everything that it ran."""
    cdef Connection *own = &state.connections[connection]
    cdef int at
    own.wanted = 0
    for at in range(state.containers[own.container].n_cards):
        drained(state, connection, at, now_ns)
    own.is_ended = own.has_event = state.has_events = True


cdef inline int take_event(ArbiterState *state, int begin, Connection *into) noexcept nogil:
    """The first connection from `begin` on with an event, which is taken; -1: there is none."""
    cdef int slot
    for slot in range(begin, state.n_connections):
        if state.connections[slot].container >= 0 and state.connections[slot].has_event:
            into[0] = state.connections[slot]
            state.connections[slot].has_event = False
            return slot
    return -1

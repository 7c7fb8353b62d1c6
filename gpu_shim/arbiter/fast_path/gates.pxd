"""The gates of a node's cards: set, drained, handed on as planned. Callers hold the lock."""

from libc.stdint cimport uint32_t, uint64_t

from gpu_shim.arbiter.fast_path.state cimport (
    BALLAST_CLOSED, BALLAST_LEASED, BALLAST_OPEN, MAX_CARDS, ArbiterState, CardSlot, Connection,
    ContainerSlot, pages_set_gate,
)


cdef inline uint32_t set_gate(ArbiterState *state, int container, int at, uint32_t gate,
                              uint64_t deadline_ns, uint64_t now_ns) noexcept nogil:
    """Set a gate; its new generation. After a closing, processes that used the card are awaited."""
    cdef ContainerSlot *of = &state.containers[container]
    cdef CardSlot *card = &state.cards[of.card[at]]
    cdef Connection *each
    cdef uint32_t bit = <uint32_t>1 << at
    cdef int ix
    of.generation[at] = pages_set_gate(of.grants, at, gate, deadline_ns)
    card.holder, card.holder_at, card.gate = container, at, gate
    card.closed_ns, card.n_awaited = 0, 0
    if gate != BALLAST_CLOSED:
        return of.generation[at]
    card.closed_ns = now_ns
    for ix in range(state.n_connections):
        each = &state.connections[ix]
        if each.container != container:
            continue
        each.awaited &= ~bit
        if not each.is_ended and each.used & bit:
            each.awaited |= bit
            card.n_awaited += 1
    return of.generation[at]


cdef inline void open_successor(
    ArbiterState *state, CardSlot *card, uint64_t now_ns
) noexcept nogil:
    """Open the gate of the planned successor."""
    cdef uint32_t gate = BALLAST_LEASED if card.run_ns else BALLAST_OPEN
    cdef uint64_t until_ns = now_ns + card.run_ns if card.run_ns else 0
    card.did_drain_ns = now_ns - card.closed_ns if card.closed_ns else 0
    set_gate(state, card.successor, card.successor_at, gate, until_ns, now_ns)
    card.did_open_ns = now_ns
    card.successor = -1
    state.has_events = True


cdef inline bint is_handing_over(const CardSlot *card) noexcept nogil:
    """Whether the holder's gate has been closed and it is planned which gate opens next."""
    return not card.close_ns and card.successor >= 0


cdef inline void advance(ArbiterState *state, int number, uint64_t now_ns) noexcept nogil:
    """Carry out the plan for the card as far as its time has come."""
    cdef CardSlot *card = &state.cards[number]
    if state.is_deciding:
        return
    if card.close_ns and card.close_ns <= now_ns:
        card.close_ns = 0
        if card.is_renewal:
            open_successor(state, card, now_ns)
            return
        set_gate(state, card.holder, card.holder_at, BALLAST_CLOSED, 0, now_ns)
        card.did_close_ns = now_ns
        if card.successor < 0:
            state.has_events = True
    if not is_handing_over(card):
        return
    if now_ns > card.latest_ns:
        card.successor = -1
        state.has_events = True
    elif not card.n_awaited:
        open_successor(state, card, now_ns)


cdef inline uint64_t next_ns(const ArbiterState *state) noexcept nogil:
    """When `advance` must be called again even if no message arrives; 0: never."""
    cdef uint64_t found = 0, then
    cdef int number
    if state.is_deciding:
        return 0
    for number in range(MAX_CARDS):
        then = state.cards[number].close_ns
        if is_handing_over(&state.cards[number]):
            then = state.cards[number].latest_ns + 1
        if then and (not found or then < found):
            found = then
    return found


cdef inline void drained(
    ArbiterState *state, int connection, int at, uint64_t now_ns
) noexcept nogil:
    """Nothing that this process launched is left on the card."""
    cdef Connection *own = &state.connections[connection]
    cdef int number = state.containers[own.container].card[at]
    cdef CardSlot *card = &state.cards[number]
    cdef uint32_t bit = <uint32_t>1 << at
    if not own.awaited & bit:
        return
    own.awaited &= ~bit
    # A process that drains after the next container was let in is no longer awaited.
    if card.holder == own.container and card.holder_at == at and card.gate == BALLAST_CLOSED:
        card.n_awaited -= 1
        advance(state, number, now_ns)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Passing the turn from container to container, as the policy decided before, without Python.

Nothing is chosen here: at a lease's end its gate closes, and when all processes that used the card
have drained, the gate of the successor opens, if there is one and it is not too late. What happened
is kept with its time until Python hears of it. Twin: `referee`, which replays it.

Nothing here does I/O but opening gates. Callers hold the hall's lock and pass the time.
"""

from gpu_shim.arbiter.hall cimport (
    BALLAST_CLOSED, BALLAST_DRAINED, BALLAST_LEASED, BALLAST_MAX_CARDS, BALLAST_OPEN, BALLAST_WANT,
    BALLAST_YIELD, MAX_DESKS, Desk, Door, Hall, Line, message_t, pages_set_gate,
)


cdef uint32_t set_gate(
    Hall *hall, int door, int at, uint32_t state, uint64_t deadline_ns
) noexcept nogil:
    """Set a gate; its generation then. Where it closes, those who used the card are awaited."""
    cdef Door *of = &hall.doors[door]
    cdef Desk *desk = &hall.desks[of.desk[at]]
    cdef uint32_t bit = <uint32_t>1 << at
    cdef Line *line
    cdef int ix
    cdef uint32_t generation = pages_set_gate(of.grants, at, state, deadline_ns)
    of.generation[at] = generation
    if state != BALLAST_CLOSED:
        return generation
    desk.holder, desk.holder_at, desk.n_awaited = door, at, 0
    for ix in range(hall.n_lines):
        line = &hall.lines[ix]
        if line.fd >= 0 and not line.is_gone and line.door == door and line.used & bit:
            line.awaited |= bit
            desk.n_awaited += 1
        elif line.door == door:
            line.awaited &= ~bit
    return generation


cdef bint hear(Hall *hall, int line, const message_t *message, uint64_t now_ns) noexcept nogil:
    """Take in what a process says; False where it may not say so."""
    cdef Line *own = &hall.lines[line]
    cdef Door *door = &hall.doors[own.door]
    cdef uint32_t bit
    if message.reserved or message.card >= door.n_cards:
        return False
    bit = <uint32_t>1 << message.card
    if message.kind == BALLAST_WANT:
        own.wanted |= bit
        own.used |= bit
        own.told |= bit
    elif message.kind == BALLAST_YIELD:
        own.wanted &= ~bit
        own.told |= bit
    elif message.kind == BALLAST_DRAINED:
        own.drained |= bit
        own.generation[message.card] = message.value
        if message.value == door.generation[message.card]:
            excuse(hall, line, message.card, now_ns)
    else:
        return False
    own.is_news = True
    # While it is known what comes next, Python need not be troubled with every one who drained.
    if message.kind != BALLAST_DRAINED or not is_passing(&hall.desks[door.desk[message.card]]):
        hall.has_news = True
    return True


cdef bint is_passing(const Desk *desk) noexcept nogil:
    """Whether the holder has been stopped, and somebody comes after it."""
    return not desk.close_ns and desk.next >= 0


cdef void lose(Hall *hall, int line, uint64_t now_ns) noexcept nogil:
    """A process is gone, and with it whatever it ran."""
    cdef int at
    for at in range(BALLAST_MAX_CARDS):
        excuse(hall, line, at, now_ns)
    hall.lines[line].is_gone = hall.lines[line].is_news = hall.has_news = True


cdef void excuse(Hall *hall, int line, int at, uint64_t now_ns) noexcept nogil:
    """Nothing of this process is left on the card."""
    cdef Line *own = &hall.lines[line]
    cdef uint32_t bit = <uint32_t>1 << at
    cdef int ix = hall.doors[own.door].desk[at]
    cdef Desk *desk = &hall.desks[ix]
    if not own.awaited & bit:
        return
    own.awaited &= ~bit
    # Of a lease before the last, it comes too late to matter.
    if desk.holder == own.door and desk.holder_at == at:
        desk.n_awaited -= 1
        advance(hall, ix, now_ns)


cdef void advance(Hall *hall, int desk, uint64_t now_ns) noexcept nogil:
    """Do what was decided for the card, as far as its time has come."""
    cdef Desk *own = &hall.desks[desk]
    if hall.is_held:
        return
    if own.close_ns and own.close_ns <= now_ns:
        own.close_ns = 0
        if own.is_renewal:
            let_in(hall, own, now_ns)
            return
        own.closed_generation = set_gate(hall, own.holder, own.holder_at, BALLAST_CLOSED, 0)
        own.closed_ns = now_ns
        if own.next < 0:
            hall.has_news = True
    if not is_passing(own):
        return
    if now_ns > own.latest_ns:
        own.next = -1
        hall.has_news = True
    elif not own.n_awaited:
        let_in(hall, own, now_ns)


cdef void let_in(Hall *hall, Desk *desk, uint64_t now_ns) noexcept nogil:
    """Open the successor's gate."""
    cdef uint32_t state = BALLAST_LEASED if desk.run_ns else BALLAST_OPEN
    cdef uint64_t until_ns = now_ns + desk.run_ns if desk.run_ns else 0
    desk.passed_generation = set_gate(hall, desk.next, desk.next_at, state, until_ns)
    desk.passed_ns = now_ns
    desk.next = -1
    hall.has_news = True


cdef uint64_t next_ns(Hall *hall) noexcept nogil:
    """When `advance` must be called again, whatever comes in; 0: never."""
    cdef uint64_t found = 0, then
    cdef int at
    for at in range(MAX_DESKS):
        then = hall.desks[at].close_ns
        if is_passing(&hall.desks[at]):
            then = hall.desks[at].latest_ns + 1
        if then and (not found or then < found):
            found = then
    return found

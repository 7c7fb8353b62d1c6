# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Places for containers and connections; a number stays its owner's until it is dropped."""

from libc.stdlib cimport realloc
from libc.string cimport memset


cdef int one_more(void **places, int *n, size_t size) noexcept nogil:
    """The number of a place added at the end; -1 without memory."""
    cdef void *grown = realloc(places[0], <size_t>(n[0] + 1) * size)
    if not grown:
        return -1
    places[0] = grown
    n[0] += 1
    return n[0] - 1


cdef int put_door(Hall *hall, const Door *door) noexcept nogil:
    """The place of a new container; -1 without memory."""
    cdef int at = 0
    while at < hall.n_doors and hall.doors[at].grants:
        at += 1
    if at == hall.n_doors:
        at = one_more(<void **>&hall.doors, &hall.n_doors, sizeof(Door))
    if at >= 0:
        hall.doors[at] = door[0]
    return at


cdef void drop_door(Hall *hall, int door) noexcept nogil:
    """Free a container's place, and call off all that was to happen with it."""
    cdef int at
    hall.doors[door].grants = NULL
    for at in range(MAX_DESKS):
        if hall.desks[at].holder == door or hall.desks[at].next == door:
            hall.desks[at].close_ns, hall.desks[at].next = 0, -1


cdef int put_line(Hall *hall, int door, int fd) noexcept nogil:
    """The place of a new connection; -1 without memory."""
    cdef int at = 0
    while at < hall.n_lines and hall.lines[at].fd >= 0:
        at += 1
    if at == hall.n_lines:
        at = one_more(<void **>&hall.lines, &hall.n_lines, sizeof(Line))
    if at >= 0:
        memset(&hall.lines[at], 0, sizeof(Line))
        hall.lines[at].fd, hall.lines[at].door = fd, door
    return at


cdef void put_order(Hall *hall, int card, const Desk *order) noexcept nogil:
    """Have this happen on the card; who has been stopped already stays awaited."""
    cdef Desk before = hall.desks[card]
    hall.desks[card] = order[0]
    if not order.close_ns:
        hall.desks[card].holder, hall.desks[card].holder_at = before.holder, before.holder_at
        hall.desks[card].n_awaited = before.n_awaited


cdef int pick_news(Hall *hall, int begin, Line *into) noexcept nogil:
    """The first line from `begin` on that has news, which are copied and then none; -1: no more."""
    cdef int at
    for at in range(begin, hall.n_lines):
        if hall.lines[at].fd >= 0 and hall.lines[at].is_news:
            into[0] = hall.lines[at]
            hall.lines[at].told = hall.lines[at].drained = 0
            hall.lines[at].is_news = False
            return at
    return -1

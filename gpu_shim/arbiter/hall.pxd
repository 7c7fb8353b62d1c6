"""What the arbiter's thread and Python both see, under one lock: doors, lines, and desks."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "pages.h" nogil:
    """
    typedef struct ballast_grants grants_t;
    typedef struct ballast_message message_t;
    """
    ctypedef struct grants_t:
        pass
    ctypedef struct message_t:
        uint8_t kind, card
        uint16_t reserved
        uint32_t value
    const int BALLAST_MAX_CARDS
    const int BALLAST_WANT, BALLAST_YIELD, BALLAST_DRAINED
    const uint32_t BALLAST_CLOSED, BALLAST_OPEN, BALLAST_LEASED
    uint32_t pages_set_gate(grants_t *grants, int card, uint32_t state, uint64_t deadline_ns)

# The cards of one node, and of those that were there before.
cdef enum:
    MAX_DESKS = 64


# A container. `desk[at]` is the desk of its card `at`, `generation[at]` that of its gate; `grants`
# is NULL where the place is free.
cdef struct Door:
    grants_t *grants
    int n_cards
    int desk[16]
    uint32_t generation[16]


# A process's connection. Bits are the container's cards: what it wants, has ever used, and of which
# it must still say that it has drained, in which generation it said so; and what Python has not
# heard yet. `fd` is -1 where the place is free.
cdef struct Line:
    int fd
    int door
    uint32_t wanted, used, awaited
    uint32_t told, drained
    uint32_t generation[16]
    bint is_gone, is_news


# One card. At `close_ns` (0: it has happened) the gate of card `holder_at` of `holder` closes, or
# opens anew where it is its own successor; `next` (-1: whoever Python says) gets the card when
# nobody is awaited any more, until `latest_ns`, for `run_ns` (0: without an end).
cdef struct Desk:
    uint64_t close_ns, latest_ns, run_ns
    int holder, holder_at, next, next_at
    bint is_renewal
    int n_awaited
    # What happened by itself and Python has not heard yet (0: it did not), and the generations of
    # the gates then.
    uint64_t closed_ns, passed_ns
    uint32_t closed_generation, passed_generation


cdef struct Hall:
    Door *doors
    Line *lines
    int n_doors, n_lines
    Desk desks[MAX_DESKS]
    # While Python decides, nothing happens by itself.
    bint is_held, has_news


cdef int put_door(Hall *hall, const Door *door) noexcept nogil
cdef void drop_door(Hall *hall, int door) noexcept nogil
cdef int put_line(Hall *hall, int door, int fd) noexcept nogil
cdef void put_order(Hall *hall, int card, const Desk *order) noexcept nogil
cdef int pick_news(Hall *hall, int begin, Line *into) noexcept nogil

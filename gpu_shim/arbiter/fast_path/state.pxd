"""The state of all cards of a node. `Slots` owns it; one mutex guards all of it."""

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
        uint16_t slot
        uint32_t value
    const int BALLAST_MAX_CARDS
    const int BALLAST_WANT, BALLAST_YIELD, BALLAST_DRAINED
    const uint32_t BALLAST_CLOSED, BALLAST_OPEN, BALLAST_LEASED
    uint32_t pages_set_gate(grants_t *grants, int card, uint32_t state, uint64_t deadline_ns)

# Cards of one node, including those that have been removed from it.
cdef enum:
    MAX_CARDS = 64


# One container; the slot is free if `grants` is NULL. `card[at]` is the node's number of the
# container's card `at`, `generation[at]` the generation of that gate.
cdef struct ContainerSlot:
    grants_t *grants
    int n_cards
    int card[16]
    uint32_t generation[16]


# The connection of one process; free if `container` is -1. Each bit is a card of the container:
# the process wants it, has ever used it, has not said yet that it has drained it.
cdef struct Connection:
    int fd
    int container
    uint32_t wanted, used, awaited
    bint is_ended, has_event


# One card. `holder` is the container of the gate that was set last, `holder_at` the card's index in
# it; see `events.CardState` for the four fields after them and `events.Plan` for the plan.
cdef struct CardSlot:
    int holder, holder_at
    uint32_t gate
    uint64_t closed_ns
    int n_awaited
    # The plan.
    uint64_t close_ns, latest_ns, run_ns
    int successor, successor_at
    bint is_renewal
    # What was carried out since the scheduler looked; 0: nothing.
    uint64_t did_close_ns, did_open_ns, did_drain_ns


cdef struct ArbiterState:
    ContainerSlot *containers
    Connection *connections
    int n_containers, n_connections
    CardSlot cards[MAX_CARDS]
    # While the scheduler decides, no plan is carried out.
    bint is_deciding
    bint has_events

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the hall's structs say, as `news` has it; and what Python orders, as a desk has it."""

from libc.stdint cimport uint32_t
from libc.string cimport memset

from gpu_shim.arbiter.hall cimport BALLAST_MAX_CARDS, MAX_DESKS, Desk, Door, Line, grants_t

from gpu_shim.arbiter.news import Act, Said


cdef list acts_of(const Desk *desks):
    """What happened by itself on all of the hall's cards."""
    cdef int at
    return [
        Act(at, desks[at].closed_ns, desks[at].closed_generation,
            desks[at].passed_ns, desks[at].passed_generation)
        for at in range(MAX_DESKS)
        if desks[at].closed_ns or desks[at].passed_ns
    ]


cdef object said_of(int place, const Line *line):
    """What a process said lately."""
    return Said(
        place,
        [(at, bool(line.wanted >> at & 1)) for at in _bits(line.told)],
        [(at, line.generation[at]) for at in _bits(line.drained)],
        bool(line.is_gone),
    )


cdef Desk desk_of(order) except *:
    """A card on which this is to happen, and nothing has yet; None: nothing."""
    cdef Desk desk
    memset(&desk, 0, sizeof(desk))
    desk.next = -1
    if order is not None:
        desk.close_ns, desk.latest_ns, desk.run_ns = order.close_ns, order.latest_ns, order.run_ns
        desk.holder, desk.holder_at = order.holder
        desk.next, desk.next_at = order.following
        desk.is_renewal = order.is_renewal
    return desk


cdef Door door_of(size_t grants, cards) except *:
    """A container: the address of its grants, and the numbers of its cards."""
    cdef Door door
    memset(&door, 0, sizeof(door))
    door.grants, door.n_cards = <grants_t *>grants, len(cards)
    if not 0 < door.n_cards <= BALLAST_MAX_CARDS:
        raise ValueError(f"a container of {len(cards)} cards")
    for at, card in enumerate(cards):
        if not 0 <= card < MAX_DESKS:
            raise ValueError(f"card {card} of {MAX_DESKS}")
        door.desk[at] = card
    return door


cdef list _bits(uint32_t mask):
    return [at for at in range(BALLAST_MAX_CARDS) if mask >> at & 1]

"""Structs of the hall in Python's words, and back: see `words.pyx`."""

from gpu_shim.arbiter.hall cimport Desk, Door, Line


cdef list acts_of(const Desk *desks)
cdef object said_of(int place, const Line *line)
cdef Desk desk_of(order) except *
cdef Door door_of(size_t grants, cards) except *

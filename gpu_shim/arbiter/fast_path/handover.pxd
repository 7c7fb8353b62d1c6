from libc.stdint cimport uint64_t

from gpu_shim.arbiter.fast_path.slots cimport Slots
from gpu_shim.arbiter.fast_path.state cimport message_t


cdef class Handover(Slots):
    cdef bint _receive(
        self, int connection, const message_t *message, uint64_t now_ns
    ) noexcept nogil
    cdef void _advance(self, uint64_t now_ns) noexcept nogil
    cdef void _heard(self) noexcept nogil
    cdef uint64_t _next_ns(self) noexcept nogil

"""Passing turns: see `turns.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from gpu_shim.arbiter.hall cimport Hall, message_t


cdef uint32_t set_gate(
    Hall *hall, int door, int at, uint32_t state, uint64_t deadline_ns
) noexcept nogil
cdef bint hear(Hall *hall, int line, const message_t *message, uint64_t now_ns) noexcept nogil
cdef void lose(Hall *hall, int line, uint64_t now_ns) noexcept nogil
cdef void advance(Hall *hall, int desk, uint64_t now_ns) noexcept nogil
cdef uint64_t next_ns(Hall *hall) noexcept nogil

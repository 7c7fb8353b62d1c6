"""The arbiter's thread: see `ear.pyx`."""

from libc.stdint cimport uint64_t

from gpu_shim.arbiter cimport linux
from gpu_shim.arbiter.bells cimport Bells
from gpu_shim.arbiter.hall cimport Hall


cdef class Ear:
    cdef Hall hall
    cdef linux.pthread_mutex_t lock
    cdef Bells bells
    cdef bint is_ending

    cdef void _serve(self) noexcept nogil
    cdef void _read(self, int line, uint64_t now_ns) noexcept nogil
    cdef void _advance(self, uint64_t now_ns) noexcept nogil
